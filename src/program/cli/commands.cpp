// SPDX-License-Identifier: Apache-2.0
#include "commands.hpp"

#include <algorithm>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include <tessera/fsdp/core/error.hpp>
#include <tessera/fsdp/core/terminal_text.hpp>

#include "../../trainer/flags/parsed.hpp"

namespace fsdp::cli {
namespace {

/// Makes `command` the options of a sub-command, and adds their flags to `app`, which sets them during parsing.
template <class Options>
void declare(CLI::App& app, Command& command) {
  auto& bound = command.emplace<Bound<Options>>();
  bind(bound.flags, *bound);
  train::add_options(app, bound.flags, app.get_name(), config_tables());
}

/// A sub-command in the list of all sub-commands.
struct Declared {
  const char* name;
  const char* help;
  void (*declare)(CLI::App& app, Command& command);
};

constexpr Declared commands[] = {
    {"train", "train a model on text", declare<Train>},
    {"plan", "whether a training step fits on a cluster, and how long it takes", declare<Plan>},
    {"calibrate", "measure these machines for plan: rates, copies, collectives", declare<Calibrate>},
    {"eval", "mean loss of a model over text, as JSON", declare<Eval>},
    {"generate", "write text with a trained model", declare<Generate>},
    {"chat", "talk to a model in the terminal; /reset begins anew, /quit ends", declare<Chat>},
    {"export", "a checkpoint as a folder that transformers opens", declare<Export>},
    {"inspect", "what a model's folder holds, takes to train, and what is wrong with it", declare<Inspect>},
    {"tokenize", "text and JSONL as token files", declare<Tokenize>},
    {"plot", "curves of one or several runs as a picture (SVG)", declare<Plot>},
    {"diff", "where the digests of two runs part; status 1 if they do", declare<Diff>},
    {"replay", "a step of a run computed again, on any ranks; with --against, status 1 if the run's was another",
     declare<Replay>},
    {"stacks", "what is compiled into this program, and what could be",
     [](CLI::App&, Command& command) { command = Stacks{}; }}};

std::vector<std::string> command_names() {
  std::vector<std::string> names;
  for (const Declared& command : commands) names.emplace_back(command.name);
  return names;
}

/// Returns the words of the command line, with `help`, `help COMMAND` and `version` replaced by flags. Throws
/// InputError if the first word is not a command, so that this error comes before errors of the flags.
std::vector<const char*> words_of(int argc, const char* const* argv) {
  std::vector<const char*> words(argv, argv + argc);
  const std::vector<std::string> names = command_names();
  if (words.size() < 2) throw InputError(message("no command was given; ", suggestion("", names), ". See --help"));
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
  require<InputError>(std::ranges::find(names, first) != names.end(), "unknown command '", shortened(first), "'; ",
                      suggestion(first, names));
  return words;
}

}  // namespace

std::vector<std::string> config_tables() {
  std::vector<std::string> tables = command_names();
  tables.emplace_back("bench");
  return tables;
}

Command parse(int argc, const char* const* argv) {
  const std::vector<const char*> words = words_of(argc, argv);
  const std::string_view first = words[1];
  if (first == "--version") return Version{};
  CLI::App app("Trains transformers whose weights are sharded over ranks and whose sequences are cut into tiles.",
               "tessera");
  app.allow_extras();
  app.footer(
      "Exit status: 0 done, 1 failure, 2 bad input, 3 diverged or a rank lost, 128 + signal where SIGTERM or "
      "SIGINT ended a run after a step, or an export.");
  app.require_subcommand(0, 1);
  app.set_version_flag("--version", "", "version, compiler, libraries, instruction set and stacks of this program");
  Command command;
  for (const auto& [name, help, declare] : commands) {
    CLI::App& declared = *app.add_subcommand(name, help);
    if (first == name) declare(declared, command);
  }
  if (auto help = train::run(app, static_cast<int>(words.size()), words.data())) return *help;
  // An invalid optimizer must be an error before anything starts.
  if (const auto* const train = std::get_if<Bound<Train>>(&command)) (void)resolve((*train)->optimizer);
  if (const auto* const plan = std::get_if<Bound<Plan>>(&command)) (void)resolve((*plan)->train.optimizer);
  return command;
}

}  // namespace fsdp::cli
