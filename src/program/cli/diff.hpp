// SPDX-License-Identifier: Apache-2.0
/// @file
/// The sub-command diff.
#pragma once

#include "commands.hpp"

namespace fsdp::cli {

/// Prints the first place where the digests of two runs part. Warns on stderr about lines that cannot be used. Returns
/// 0 if they are the same, else 1. Throws InputError.
int run_diff(const Diff& command);

}  // namespace fsdp::cli
