// SPDX-License-Identifier: Apache-2.0
/// @file
/// What a report of a bug should begin with.
#pragma once

#include <string>

namespace fsdp::cli {

/// Version, compiler, system, instruction set of the CPU's kernels, and what was found when the program was built.
std::string version_text();

}  // namespace fsdp::cli
