// SPDX-License-Identifier: Apache-2.0
#include "names.hpp"

#include <algorithm>

#include <tessera/fsdp/core/error.hpp>
#include <tessera/fsdp/core/nearest.hpp>
#include <tessera/fsdp/core/terminal_text.hpp>

namespace fsdp::cli {

void refuse_unknown(std::string_view flag, std::string_view value, std::span<const std::string> names) {
  throw InputError(message("--", flag, " ", shortened(value), " is not known; ", suggestion(value, names)));
}

std::size_t index_of_name(std::string_view flag, std::string_view value, std::span<const std::string> names) {
  const auto found = std::ranges::find(names, value);
  if (found == names.end()) refuse_unknown(flag, value, names);
  return static_cast<std::size_t>(found - names.begin());
}

}  // namespace fsdp::cli
