// SPDX-License-Identifier: Apache-2.0
/// @file
/// The program's command line: the sub-command, its options, and the policies that choose a stack.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <variant>
#include <vector>

#include <tessera/fsdp/core/dtype.hpp>
#include <tessera/trainer/data/tokenize.hpp>
#include <tessera/trainer/flags/flags.hpp>
#include <tessera/trainer/flags/optimizer_choice.hpp>
#include <tessera/trainer/flags/options.hpp>
#include <tessera/trainer/run/replay_request.hpp>

#include "stack_choice.hpp"

namespace fsdp::cli {

/// The options of the sub-commands (tessera COMMAND --help).
struct Train {
  train::TrainOptions options = {};
  train::OptimizerChoice optimizer = {};
  StackChoice stack = {};

  friend bool operator==(const Train&, const Train&) = default;
};

struct Plan {
  Train train = {};
  train::PlanOptions plan = {};
  bool fit = false;  ///< search all options that the flags leave open for the fastest configurations that fit
};

struct Calibrate {
  std::string out = {};      ///< path of the file to write; empty: stdout
  std::int64_t repeats = 9;  ///< number of samples of each figure; the median is reported
  CommChoice comm = {};
  train::LaunchOptions launch = {};
};

/// A sub-command that runs a trained model on a stack.
template <class Options>
struct OnStack {
  Options options = {};
  StackChoice stack = {};

  friend bool operator==(const OnStack&, const OnStack&) = default;
};

using Eval = OnStack<train::EvalOptions>;
using Generate = OnStack<train::GenerateOptions>;
using Chat = OnStack<train::ChatOptions>;

struct ExportType {
  DType dtype = DType::f32;
};
void from_text(std::string_view flag, std::string_view text, ExportType& value);
std::string to_text(ExportType value);

struct Export {
  std::string from = {}, to = {};
  ExportType type = {};
  std::int64_t shard_bytes = 5'000'000'000;
  std::string files_from = {};
  std::string adapter = {};
  bool merge = false;
};

struct Inspect {
  std::string folder = {};
  bool quick = false;
};

struct Tokenize {
  data::TokenizeRequest request = {};
  std::vector<std::string> inputs = {};
  std::string tokenizer = {}, out = {};
};

struct Plot {
  std::vector<std::string> files = {};
  std::string out = "plot.svg";
};

struct Diff {
  std::string a = {}, b = {};
};

struct Replay {
  train::ReplayRequest request = {};
  std::vector<std::string> data = {};  ///< data files; empty: the paths that the run recorded
  std::string tokenizer = {};          ///< tokenizer; empty: the checkpoint's, or the path that the run recorded
  std::string token_cache = {};
  std::optional<ShardingChoice> sharding = {};  ///< strategy; nothing: the run's
  std::optional<CommChoice> comm = {};
  train::LaunchOptions launch = {};
};

/// `tessera stacks`: lists the compiled stacks, and the combinations that policies and backends support.
struct Stacks {};

/// `tessera --version`: prints the version.
struct Version {};

using train::Bound;
using Command = std::variant<train::Help, Version, Stacks, Bound<Train>, Bound<Eval>, Bound<Generate>, Bound<Chat>,
                             Bound<Export>, Bound<Inspect>, Bound<Tokenize>, Bound<Plot>, Bound<Diff>, Bound<Replay>,
                             Bound<Plan>, Bound<Calibrate>>;

/// Returns the names of the tables that a --config file may contain: one for each sub-command, and tessera_bench's.
std::vector<std::string> config_tables();

/// Returns what to quote in a bug report: version, compiler, system, instruction set and libraries.
std::string version_text();

/// Returns tables of the combinations that policies and backends support, whether or not they are compiled into this
/// program. They are made from the traits that `Stack` and the collectives check.
std::string support_text();

/// Parses `tessera <sub-command> ...`. Throws InputError.
Command parse(int argc, const char* const* argv);

/// Add the flags of a sub-command.
void bind(train::FlagSet& flags, StackChoice& stack);
/// The same with an --offload that also sets the share of block inputs in host memory, with its help text.
void bind(train::FlagSet& flags, StackChoice& stack, double& offloaded_inputs, const std::string& help);
void bind(train::FlagSet& flags, Train& command);
template <class Options>
void bind(train::FlagSet& flags, OnStack<Options>& command) {
  bind(flags, command.options);
  bind(flags, command.stack);
}
void bind(train::FlagSet& flags, Plan& command);
void bind(train::FlagSet& flags, Calibrate& command);
void bind(train::FlagSet& flags, Export& command);
void bind(train::FlagSet& flags, Inspect& command);
void bind(train::FlagSet& flags, Tokenize& command);
void bind(train::FlagSet& flags, Plot& command);
void bind(train::FlagSet& flags, Diff& command);
void bind(train::FlagSet& flags, Replay& command);

/// Run the sub-commands that work on files and start no ranks. Return the exit status. Throw InputError.
int run(const Export& command);
/// Prints the contents of a model's folder, of adapters or of checkpoints, and all problems, which it finds by reading
/// every byte unless --quick is given. Returns 2 if there are problems.
int run(const Inspect& command);
int run(const Tokenize& command);
int run(const Plot& command);  ///< warns on stderr about unusable lines
int run(const Diff& command);  ///< the same; returns 1 if the digests differ

/// Starts or joins the ranks of a communicator and measures the figures of a plan::Cluster; rank 0 writes the file.
/// Returns the exit status. Throws InputError unless ranks are numbered node by node. Defined in ../calibrate/work.hpp.
template <class Comm>
int calibrate(const Calibrate& command);

}  // namespace fsdp::cli
