// SPDX-License-Identifier: Apache-2.0
/// @file
/// The sub-commands on folders of models, which run no ranks: export and inspect.
#pragma once

#include "cli/commands.hpp"

namespace fsdp::cli {

/// Returns the exit status. Throws InputError.
int run_export(const Export& command);

/// Prints what a model's folder holds, or which checkpoints a directory does, and everything that is wrong with it:
/// every byte that a manifest.json tells of is read. Returns 0, or 2 where something is.
int run_inspect(const Inspect& command);

}  // namespace fsdp::cli
