// SPDX-License-Identifier: Apache-2.0
/// @file
/// The program's command line: which sub-command, what it is told, and which policies are meant.
#pragma once

#include <variant>

#include <fsdp/train/flags.hpp>
#include <fsdp/train/optimizer_choice.hpp>
#include <fsdp/train/options.hpp>

#include "bench/options.hpp"
#include "cli/stack_choice.hpp"

namespace fsdp::cli {

struct Train {
  train::TrainOptions options = {};
  train::OptimizerChoice optimizer = {};
  StackChoice stack = {};

  friend bool operator==(const Train&, const Train&) = default;
};

struct Eval {
  train::EvalOptions options = {};
  StackChoice stack = {};

  friend bool operator==(const Eval&, const Eval&) = default;
};

struct Generate {
  train::GenerateOptions options = {};
  StackChoice stack = {};

  friend bool operator==(const Generate&, const Generate&) = default;
};

/// What is compiled into the program, and what could be.
struct Stacks {};

using Command = std::variant<train::Help, Train, Eval, Generate, bench::BenchOptions, Stacks>;

/// `tessera <sub-command> ...`. Throws InputError.
Command parse(int argc, const char* const* argv);

/// The flags of each sub-command.
void bind(train::FlagSet& flags, StackChoice& stack);
void bind(train::FlagSet& flags, Train& command);
void bind(train::FlagSet& flags, Eval& command);
void bind(train::FlagSet& flags, Generate& command);
void bind(train::FlagSet& flags, bench::BenchOptions& options);

}  // namespace fsdp::cli
