// SPDX-License-Identifier: Apache-2.0
/// @file
/// The sub-commands that work on files and start no ranks: export, inspect, tokenize, plot and diff.
#pragma once

#include "commands.hpp"

namespace fsdp::cli {

/// Runs `tessera export`. Returns the exit status. Throws InputError.
int run(const Export& command);

/// Prints the contents of a folder (of a model, of adapters, or of checkpoints) and all problems. Unless --quick is
/// given, reads every byte that a manifest.json has a checksum for, and searches for weights that are not finite.
/// Returns 0, or 2 if there are problems.
int run(const Inspect& command);

/// Runs `tessera tokenize`. Returns the exit status. Throws InputError.
int run(const Tokenize& command);

/// Draws metrics files. Warns on stderr about unusable lines. Returns 0. Throws InputError.
int run(const Plot& command);

/// Prints the first difference between the digests of two runs. Warns on stderr about unusable lines. Returns 0 if the
/// digests are equal, else 1. Throws InputError.
int run(const Diff& command);

}  // namespace fsdp::cli
