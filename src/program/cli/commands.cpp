// SPDX-License-Identifier: Apache-2.0
#include "commands.hpp"

#include <algorithm>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include <tessera/fsdp/core/error.hpp>
#include <tessera/fsdp/core/nearest.hpp>
#include <tessera/fsdp/core/terminal_text.hpp>

#include "../../trainer/flags/parsed.hpp"

namespace fsdp::cli {
namespace {

const std::vector<std::string> command_names = {"train", "plan",   "calibrate", "eval",     "generate",
                                                "chat",  "export", "inspect",   "tokenize", "plot",
                                                "diff",  "replay", "stacks"};

void require_model(const std::string& model) {
  require<InputError>(!model.empty(), "--model is missing; give a folder with config.json and weights");
}

/// Each throws InputError if a value that the command needs is missing or unknown.
/// @{
void complete(const Train& command) {
  (void)resolve(command.optimizer);  // reports an invalid choice before anything starts
}
void complete(const Plan& command) {
  (void)resolve(command.train.optimizer);
  require<InputError>(command.train.options.cluster.has_value(),
                      "--cluster is missing; give a TOML file, or a name: ", cluster_names());
}
void complete(const Calibrate&) {}
void complete(const Eval& command) {
  require_model(command.options.model);
  require<InputError>(!command.options.data.empty(), "--data is missing; give files or folders of text");
}
void complete(const Generate& command) { require_model(command.options.model); }
void complete(const Chat& command) { require_model(command.options.generate.model); }
void complete(const Export& command) {
  require<InputError>(!command.from.empty() && !command.to.empty(),
                      "export: give a checkpoint and the folder to make: tessera export CHECKPOINT OUT");
}
void complete(const Inspect& command) {
  require<InputError>(!command.folder.empty(), "inspect: give a folder: tessera inspect FOLDER");
}
void complete(const Tokenize& command) {
  require<InputError>(!command.inputs.empty() && !command.tokenizer.empty() && !command.out.empty(),
                      "tokenize: give texts, their tokenizer and the folder to make: tessera tokenize INPUT... "
                      "--tokenizer FOLDER --out FOLDER");
}
void complete(const Plot& command) {
  require<InputError>(!command.files.empty(), "plot: give metrics files: tessera plot METRICS...");
}
void complete(const Diff& command) {
  require<InputError>(!command.a.empty() && !command.b.empty(),
                      "diff: give two files of digests, or folders with tensors: tessera diff A B");
}
void complete(Replay& command) {
  require<InputError>(!command.request.folder.empty(),
                      "replay: give the folder of the run's checkpoints: tessera replay CHECKPOINTS --step N");
  require<InputError>(command.step.has_value(), "--step is missing; give the number of a step, from 1 on");
  command.request.step = *command.step;
}
/// @}

/// A sub-command, its options and its flags.
template <class Options>
class Declared {
 public:
  Declared(CLI::App& program, const std::string& name, const std::string& help)
      : app_(*program.add_subcommand(name, help)), parsed_(app_, bound(), name, config_tables()) {}

  /// If the sub-command was asked for, sets and checks its options, and returns true.
  bool take(Command& command) {
    if (!app_.parsed()) return false;
    parsed_.finish();
    complete(*options_);
    command = std::move(options_);
    return true;
  }

 private:
  train::FlagSet& bound() {
    bind(options_.flags, *options_);
    return options_.flags;
  }

  Bound<Options> options_;
  CLI::App& app_;
  train::Parsed parsed_;
};

/// Returns the words of the command line with `help`, `help COMMAND` and `version` as flags. Throws InputError if the
/// first is no command, before flags that follow a misspelled one are looked at.
std::vector<const char*> words_of(int argc, const char* const* argv) {
  std::vector<const char*> words(argv, argv + argc);
  if (words.size() < 2)
    throw InputError(message("no command was given; ", suggestion("", command_names), ". See --help"));
  if (words[1] == std::string_view("help")) {
    require<InputError>(argc <= 3, "help takes one command, and got '", shortened(argv[argc - 1]), "' as well");
    if (argc == 3) words[1] = words[2];
    words.back() = "--help";
  }
  const std::string first = words[1] == std::string_view("version") ? words[1] = "--version" : words[1];
  require<InputError>(first != "--version" || argc == 2, "version takes no words, and got '", shortened(argv[argc - 1]),
                      "'");
  if (first == "--help" || first == "-h" || first == "--version") return words;
  require<InputError>(!first.starts_with("-"), shortened(first), " stands in front of the command; ",
                      "give the command first, as in tessera train --data FILE. See --help");
  require<InputError>(first != "bench", "bench is a separate program, tessera_bench, which takes the same words; ",
                      "build it: cmake --build --preset release --target tessera_bench");
  require<InputError>(std::ranges::find(command_names, first) != command_names.end(), "unknown command '",
                      shortened(first), "'; ", suggestion(first, command_names));
  return words;
}

}  // namespace

std::vector<std::string> config_tables() {
  std::vector<std::string> tables = command_names;
  tables.emplace_back("bench");
  return tables;
}

Command parse(int argc, const char* const* argv) {
  const std::vector<const char*> words = words_of(argc, argv);
  CLI::App app("Trains transformers whose weights are sharded over ranks and whose sequences are cut into tiles.",
               "tessera");
  app.allow_extras();
  app.footer(
      "Exit status: 0 done, 1 failure, 2 bad input, 3 diverged or a rank lost, 128 + signal where SIGTERM or "
      "SIGINT ended a run after a step, or an export.");
  app.require_subcommand(0, 1);
  bool version = false;
  app.add_flag("--version", version, "version, compiler, libraries, instruction set and stacks of this program");
  Declared<Train> train(app, "train", "train a model on text");
  Declared<Plan> plan(app, "plan", "whether a training step fits on a cluster, and how long it takes");
  Declared<Calibrate> calibrate(app, "calibrate", "measure these machines for plan: rates, copies, collectives");
  Declared<Eval> eval(app, "eval", "mean loss of a model over text, as JSON");
  Declared<Generate> generate(app, "generate", "write text with a trained model");
  Declared<Chat> chat(app, "chat", "talk to a model in the terminal; /reset begins anew, /quit ends");
  Declared<Export> exported(app, "export", "a checkpoint as a folder that transformers opens");
  Declared<Inspect> inspect(app, "inspect", "what a model's folder holds, takes to train, and what is wrong with it");
  Declared<Tokenize> tokenize(app, "tokenize", "text and JSONL as token files");
  Declared<Plot> plot(app, "plot", "curves of one or several runs as a picture (SVG)");
  Declared<Diff> diff(app, "diff", "where the digests of two runs part; status 1 if they do");
  Declared<Replay> replay(
      app, "replay", "a step of a run computed again, on any ranks; with --against, status 1 if the run's was another");
  CLI::App& stacks = *app.add_subcommand("stacks", "what is compiled into this program, and what could be");

  train::Help help;
  if (!run(app, static_cast<int>(words.size()), words.data(), help)) return help;
  if (version) return Version{};
  if (stacks.parsed()) return Stacks{};
  Command command;
  const auto any = [&](auto&... declared) { return (declared.take(command) || ...); };
  if (any(train, plan, calibrate, eval, generate, chat, exported, inspect, tokenize, plot, diff, replay))
    return command;
  throw Error("a command of the command line was not taken");
}

}  // namespace fsdp::cli
