// SPDX-License-Identifier: Apache-2.0
/// @file
/// What the program says of itself: `tessera --version` and `tessera stacks`.
#pragma once

#include <string>

namespace fsdp::cli {

/// Returns what to quote in a bug report: version, compiler, system, instruction set of the CPU kernels, and the
/// libraries found when it was built.
std::string version_text();

/// Returns tables of what policies and backends support, whether or not it is compiled into this program: backends by
/// operation and element type, precisions by backend, strategies by placement and layout. They are made from the traits
/// that `Stack` and the collectives check.
std::string support_text();

}  // namespace fsdp::cli
