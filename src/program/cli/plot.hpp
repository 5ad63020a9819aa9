// SPDX-License-Identifier: Apache-2.0
/// @file
/// The sub-command plot.
#pragma once

#include "commands.hpp"

namespace fsdp::cli {

/// Draws metrics files. Warns on stderr about lines that cannot be used. Returns 0. Throws InputError.
int run_plot(const Plot& command);

}  // namespace fsdp::cli
