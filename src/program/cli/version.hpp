// SPDX-License-Identifier: Apache-2.0
/// @file
/// The text of `tessera --version`: what to quote in a bug report.
#pragma once

#include <string>

namespace fsdp::cli {

/// Returns version, compiler, system, instruction set of the CPU kernels, and the libraries found when it was built.
std::string version_text();

}  // namespace fsdp::cli
