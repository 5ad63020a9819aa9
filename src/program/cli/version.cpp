// SPDX-License-Identifier: Apache-2.0
#include "commands.hpp"

#include <algorithm>
#include <cstddef>
#include <string_view>

#include <tessera/fsdp/core/error.hpp>
#include <tessera/fsdp/device/compute/cpu.hpp>
#include <tessera/fsdp/version.hpp>

namespace fsdp::cli {

std::string version_text() {
  const auto row = [](std::string_view name, std::string_view value) {
    std::string text = message("  ", name);
    text.resize(std::max<std::size_t>(text.size() + 2, 20), ' ');
    return text.append(value).append("\n");
  };
  std::string text = message("tessera ", version_string, "\n");
  text += row("instruction set", device::arithmetic());
#define FSDP_BUILT_WITH(name, version) text += row(name, version);
#define FSDP_BUILT_WITHOUT(name) text += row(name, "not built in");
#include <built_with.inc>
#undef FSDP_BUILT_WITH
#undef FSDP_BUILT_WITHOUT
  return text;
}

}  // namespace fsdp::cli
