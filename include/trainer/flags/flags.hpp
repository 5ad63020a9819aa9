// SPDX-License-Identifier: Apache-2.0
/// @file
/// The flags that each command has on every stack, and the command line of a program with a single stack.
#pragma once

#include <string>
#include <variant>

#include <tessera/fsdp/core/function_ref.hpp>
#include <tessera/trainer/flags/flag_set.hpp>
#include <tessera/trainer/flags/options.hpp>

namespace fsdp::train {

/// The user asked for `--help`: print the text and exit with status 0.
struct Help {
  std::string text;
};

/// The policies of a single-stack program as text for messages, and whether the program starts its ranks itself.
struct FixedStack {
  std::string sharding, precision, tiling, comm;
  Ulysses sequence = {};      ///< default of --sequence
  bool starts_ranks = false;  ///< whether the program starts its ranks; --ranks then sets their number
  /// Whether the program always offloads the optimizer; --offload may then include it.
  bool offloads_optimizer = false;
};

/// Parses the command line of a program that only trains: the flags of `tessera train`, without the sub-command and
/// without the flags that select a policy. `bind_own` adds the flags of the model and the optimizer. Throws InputError.
std::variant<Help, Bound<TrainOptions>> parse_train(int argc, const char* const* argv, const FixedStack& fixed,
                                                    FunctionRef<void(FlagSet&, ModelChoice&)> bind_own);
/// Runs such a program: prints the help or calls `train`. Returns the exit status as run_program does.
int run_trainer(int argc, const char* const* argv, const FixedStack& fixed,
                FunctionRef<void(FlagSet&, ModelChoice&)> bind_own, FunctionRef<int(const Bound<TrainOptions>&)> train);

/// Adds a command's flags, except those for policies, model sizes and the optimizer. The set refers to the options.
void bind(FlagSet& flags, TrainOptions& options);
void bind(FlagSet& flags, EvalOptions& options);
void bind(FlagSet& flags, GenerateOptions& options);
void bind(FlagSet& flags, ChatOptions& options);
void bind(FlagSet& flags, LaunchOptions& options);

/// Adds the deadlines of ranks, and --shared-windows. `disk`: also adds --disk-deadline.
void bind_waits(FlagSet& flags, LaunchOptions& options, bool disk);

}  // namespace fsdp::train
