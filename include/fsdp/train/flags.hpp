// SPDX-License-Identifier: Apache-2.0
/// @file
/// The flags of each command that work on any stack, and the command line of a program that has one stack.
#pragma once

#include <string>
#include <variant>

#include <fsdp/core/function_ref.hpp>
#include <fsdp/train/flag_set.hpp>
#include <fsdp/train/options.hpp>

namespace fsdp::train {

/// `--help` was asked for: print and end with status 0.
struct Help {
  std::string text;
};

/// What the types of a program's one stack settle, in words, and whether it starts its ranks itself.
struct FixedStack {
  std::string sharding, precision, tiling, comm;
  bool starts_ranks = false;  ///< then --ranks says how many
};

/// A program that only trains: the flags of `tessera train` without the sub-command and without those that name a
/// policy. `bind_own` adds those of the model and of the optimizer. Throws InputError.
std::variant<Help, TrainOptions> parse_train(int argc, const char* const* argv, const FixedStack& fixed,
                                             FunctionRef<void(FlagSet&, ModelChoice&)> bind_own);
/// All of such a program: calls `train`, or prints its help. Returns the exit status, as run_program.
int run_trainer(int argc, const char* const* argv, const FixedStack& fixed,
                FunctionRef<void(FlagSet&, ModelChoice&)> bind_own, FunctionRef<int(const TrainOptions&)> train);

/// All flags of a command but those that name policies, the model's sizes and the optimizer. The options must outlive
/// the set.
void bind(FlagSet& flags, TrainOptions& options);
void bind(FlagSet& flags, EvalOptions& options);
void bind(FlagSet& flags, GenerateOptions& options);
void bind(FlagSet& flags, ChatOptions& options);
void bind(FlagSet& flags, LaunchOptions& options);

/// All options as the TOML file that gives them.
/// @{
std::string to_toml(const TrainOptions& options);
std::string to_toml(const EvalOptions& options);
std::string to_toml(const GenerateOptions& options);
std::string to_toml(const ChatOptions& options);
/// @}

}  // namespace fsdp::train
