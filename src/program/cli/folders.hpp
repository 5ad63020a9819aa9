// SPDX-License-Identifier: Apache-2.0
/// @file
/// The sub-commands that work on folders of models and start no ranks: export and inspect.
#pragma once

#include "commands.hpp"

namespace fsdp::cli {

/// Runs `tessera export`. Returns the exit status. Throws InputError.
int run_export(const Export& command);

/// Prints the contents of a folder (of a model, of adapters, or of checkpoints) and all problems. Unless --quick is
/// given, reads every byte that a manifest.json has a checksum for, and looks for weights that are not finite. Returns
/// 0, or 2 if there are problems.
int run_inspect(const Inspect& command);

}  // namespace fsdp::cli
