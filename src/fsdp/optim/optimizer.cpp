// SPDX-License-Identifier: Apache-2.0
#include <tessera/fsdp/optim/optimizer.hpp>

#include <algorithm>
#include <array>
#include <charconv>
#include <cstddef>
#include <string_view>

#include <tessera/fsdp/core/error.hpp>
#include <tessera/fsdp/core/finite.hpp>

namespace fsdp::optim {

void require_constant(bool holds, std::string_view name, double value, std::string_view range) {
  std::array<char, 32> digits{};  // all of them: 0.99999999 is not 1
  const char* const end = std::to_chars(digits.data(), digits.data() + digits.size(), value).ptr;
  require<InputError>(holds && is_finite(value), "--", name, " ", std::string_view(digits.data(), end), " must be ",
                      range);
}

void require_state_names(std::string_view optimizer, const Parameter& parameter,
                         std::span<const std::string_view> names) {
  for (std::size_t i = 0; i < names.size(); ++i)
    require<InputError>(!names[i].empty() && std::count(names.begin(), names.end(), names[i]) == 1, "the optimizer ",
                        optimizer, " gives state ", i, " of '", parameter.name, "' the name '", names[i],
                        "'; checkpoints store states by name, so give each a different one");
}

}  // namespace fsdp::optim
