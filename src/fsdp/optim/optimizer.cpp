// SPDX-License-Identifier: Apache-2.0
#include <tessera/fsdp/optim/optimizer.hpp>

#include <algorithm>
#include <cstddef>

#include <tessera/fsdp/core/error.hpp>
#include <tessera/fsdp/core/finite.hpp>

namespace fsdp::optim {

void require_constant(bool holds, std::string_view name, double value, std::string_view range) {
  require<InputError>(holds && is_finite(value), "--", name, " ", value, " must be ", range);
}

void require_state_names(std::string_view optimizer, const Parameter& parameter,
                         std::span<const std::string_view> names) {
  for (std::size_t i = 0; i < names.size(); ++i)
    require<InputError>(!names[i].empty() && std::count(names.begin(), names.end(), names[i]) == 1, "the optimizer ",
                        optimizer, " gives state ", i, " of '", parameter.name, "' the name '", names[i],
                        "'; checkpoints hold states by name, so give each a name of its own");
}

}  // namespace fsdp::optim
