// SPDX-License-Identifier: Apache-2.0
/// @file
/// The program's command line: which sub-command, what it is told, and which policies are meant.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>
#include <variant>
#include <vector>

#include <fsdp/core/dtype.hpp>
#include <fsdp/data/tokenize.hpp>
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

struct Chat {
  train::ChatOptions options = {};
  StackChoice stack = {};

  friend bool operator==(const Chat&, const Chat&) = default;
};

struct ExportType {
  DType dtype = DType::f32;
};
void from_text(std::string_view flag, std::string_view text, ExportType& value);
std::string to_text(ExportType value);

/// A folder that other programs open, of a checkpoint.
struct Export {
  std::string from = {}, to = {};
  ExportType type = {};
  std::int64_t shard_bytes = 5'000'000'000;
  std::string files_from = {};
  std::string adapter = {};
  bool merge = false;
};

/// What a folder holds.
struct Inspect {
  std::string folder = {};
};

/// Token files of text.
struct Tokenize {
  data::TokenizeRequest request = {};
  std::vector<std::string> inputs = {};
  std::string tokenizer = {}, out = {};
};

/// Curves of metrics files.
struct Plot {
  std::vector<std::string> files = {};
  std::string out = "plot.svg";
};

/// What is compiled into the program, and what could be.
struct Stacks {};

/// Which Tessera this is, and of what it was built.
struct Version {};

using Command = std::variant<train::Help, Version, Train, Eval, Generate, Chat, Export, Inspect, Tokenize, Plot,
                             bench::BenchOptions, Stacks>;

/// `tessera <sub-command> ...`. Throws InputError.
Command parse(int argc, const char* const* argv);

/// The flags of each sub-command.
void bind(train::FlagSet& flags, StackChoice& stack);
void bind(train::FlagSet& flags, Train& command);
void bind(train::FlagSet& flags, Eval& command);
void bind(train::FlagSet& flags, Generate& command);
void bind(train::FlagSet& flags, Chat& command);
void bind(train::FlagSet& flags, Export& command);
void bind(train::FlagSet& flags, Inspect& command);
void bind(train::FlagSet& flags, Tokenize& command);
void bind(train::FlagSet& flags, Plot& command);
void bind(train::FlagSet& flags, bench::BenchOptions& options);

}  // namespace fsdp::cli
