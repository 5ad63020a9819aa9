// SPDX-License-Identifier: Apache-2.0
#include "cli/version.hpp"

#include <algorithm>
#include <cstddef>
#include <string_view>

#include <fsdp/core/error.hpp>
#include <fsdp/device/cpu.hpp>
#include <fsdp/version.hpp>

namespace fsdp::cli {
namespace {

std::string row(std::string_view name, std::string_view value) {
  std::string text = message("  ", name);
  text.resize(std::max<std::size_t>(text.size() + 2, 20), ' ');
  return text.append(value).append("\n");
}

}  // namespace

std::string version_text() {
  std::string text = message("tessera ", version_string, "\n");
  text += row("compiler", FSDP_COMPILER ", " FSDP_BUILD_TYPE);
  text += row("system", FSDP_SYSTEM);
  text += row("instruction set", device::instruction_set());
#define FSDP_LIBRARY(name, version) text += row(name, version);
#define FSDP_NO_LIBRARY(name) text += row(name, "not built in");
#include <libraries.inc>
#undef FSDP_LIBRARY
#undef FSDP_NO_LIBRARY
  return text;
}

}  // namespace fsdp::cli
