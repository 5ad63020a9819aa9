// SPDX-License-Identifier: Apache-2.0
/// @file
/// The program's command line: which sub-command, and what it is told.
#pragma once

#include <variant>

#include <fsdp/train/flags.hpp>
#include <fsdp/train/options.hpp>

#include "bench/options.hpp"

namespace fsdp::cli {

using Command =
    std::variant<Help, train::TrainOptions, train::EvalOptions, train::GenerateOptions, bench::BenchOptions>;

/// `tessera <sub-command> ...`. Throws InputError.
Command parse(int argc, const char* const* argv);

}  // namespace fsdp::cli
