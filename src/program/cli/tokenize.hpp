// SPDX-License-Identifier: Apache-2.0
/// @file
/// `tessera tokenize`.
#pragma once

#include "commands.hpp"

namespace fsdp::cli {

/// Runs `tessera tokenize`. Returns the exit status. Throws InputError.
int run_tokenize(const Tokenize& command);

}  // namespace fsdp::cli
