// SPDX-License-Identifier: Apache-2.0
#include "parsed.hpp"

#include <algorithm>
#include <cstdio>
#include <utility>

#include <tessera/comm/launch/print.hpp>
#include <tessera/fsdp/core/error.hpp>
#include <tessera/fsdp/core/nearest.hpp>
#include <tessera/fsdp/core/terminal_text.hpp>
#include <tessera/fsdp/training/program.hpp>
#include <tessera/trainer/flags/ranges.hpp>

namespace fsdp::train {
namespace {

/// Throws InputError for `--flag=`, and for a flag before another one that stands where its value should.
void require_values(const CLI::App& program, int argc, const char* const* argv) {
  const CLI::App* app = &program;
  for (int i = 1; i < argc; ++i) {
    const std::string word = argv[i];
    if (word == "--") return;
    if (!word.starts_with("--")) {
      const auto named = app->get_subcommands([&](const CLI::App* command) { return command->check_name(word); });
      if (!named.empty()) app = named.front();
      continue;
    }
    const std::string name = word.substr(0, word.find('='));
    const CLI::Option* const option = app->get_option_no_throw(name);
    if (option == nullptr) continue;
    if (word == name + "=") require_value(name, "");
    if (word != name || option->get_items_expected_min() == 0 || i + 1 == argc) continue;
    const std::string next = argv[++i];
    require<InputError>(!next.starts_with("--") || app->get_option_no_throw(next.substr(0, next.find('='))) == nullptr,
                        name, " has no value, ", next, " follows; give it a value, or leave it out");
  }
}

}  // namespace

Parsed::Parsed(CLI::App& app, FlagSet flags, std::string section, std::vector<std::string> sections)
    : app_(app), flags_(std::move(flags)), section_(std::move(section)), sections_(std::move(sections)) {
  app_.allow_extras();
  app_.add_option("--config", config_, "TOML file with any of these flags; the command line wins")->type_name("FILE");
  for (const Flag& flag : flags_.flags()) add(flag);
}

std::vector<std::string> Parsed::finish() {
  refuse_extras();
  std::vector<std::string> given;
  for (const CLI::Option* option : app_.get_options())
    if (option->get_positional() || option->check_lname("config"))
      for (const std::string& text : option->results())
        require_value(option->get_positional() ? "argument " + option->get_name(true) : "--config", text);
  if (!config_.empty()) given = apply_file(flags_, config_, section_, sections_);
  for (const Flag& flag : flags_.flags()) {
    const CLI::Option* option = app_.get_option("--" + flag.name);
    if (option->count() == 0) continue;
    flag.give(texts_[flag.name]);
    given.push_back(flag.name);
  }
  std::ranges::sort(given);
  given.erase(std::unique(given.begin(), given.end()), given.end());
  return given;
}

void Parsed::add(const Flag& flag) {
  std::vector<std::string>& texts = texts_[flag.name];
  if (flag.kind == FlagKind::boolean) {
    texts.resize(1);
    app_.add_flag("--" + flag.name, texts.front(), flag.help);
    return;
  }
  CLI::Option* option = app_.add_option("--" + flag.name, texts, flag.help);
  if (flag.kind != FlagKind::list) option->expected(1)->multi_option_policy(CLI::MultiOptionPolicy::Throw);
  option->type_name(flag.kind == FlagKind::list ? "PATH" : flag.kind == FlagKind::number ? "NUMBER" : "TEXT");
  const std::vector<std::string> present = flag.get();
  if (!present.empty() && !present.front().empty()) option->default_str(present.front());
}

void Parsed::refuse_extras() const {
  const std::vector<std::string> extras = app_.remaining();
  if (extras.empty()) return;
  const std::string word = extras.front().substr(0, extras.front().find('='));
  require<InputError>(word.starts_with("-"), "unexpected argument '", shortened(word),
                      "'; a value follows its flag, as in --data FILE. See --help");
  if (word.starts_with("--")) flags_.refuse_fixed(word.substr(2));
  std::vector<std::string> known = flags_.names("--");
  known.insert(known.end(), {"--config", "--help"});
  throw InputError(message("unknown flag ", shortened(word), "; did you mean ", nearest(word, known), "? See --help"));
}

bool run(CLI::App& app, int argc, const char* const* argv, Help& help) {
  require_values(app, argc, argv);
  try {
    app.parse(argc, const_cast<char**>(argv));  // NOLINT: CLI11 2.1 takes char** and writes nothing
  } catch (const CLI::CallForHelp&) {
    help.text = app.help();
    return false;
  } catch (const CLI::ArgumentMismatch& error) {
    const bool several = std::string_view(error.what()).find("At Most") != std::string_view::npos;
    throw InputError(message(error.what(), several ? "; give the flag once, with one value" : "; give it a value"));
  } catch (const CLI::ParseError& error) {
    throw InputError(error.what());
  }
  return true;
}

std::variant<Help, TrainOptions> parse_train(int argc, const char* const* argv, const FixedStack& fixed,
                                             FunctionRef<void(FlagSet&, ModelChoice&)> bind_own) {
  CLI::App app("Trains a model on text.");
  TrainOptions options;
  FlagSet flags;
  bind(flags, options);
  bind_own(flags, options.model);
  if (fixed.starts_ranks)
    flags.add("ranks", options.launch.ranks, "that this program starts, and of the dry run",
              counts_up_to(most_started_ranks));
  else
    flags.add("ranks", options.ranks, "of the dry run; 0: those that were launched", counts_up_to(most_ranks, 0));
  flags.fix("sharding", fixed.sharding);
  flags.fix("precision", fixed.precision);
  flags.fix("tiling", fixed.tiling);
  flags.fix("comm", fixed.comm);
  for (const char* part : {"layout", "offload"}) flags.fix(part, fixed.sharding);
  Parsed parsed(app, std::move(flags), "train", {"train", "eval", "generate", "bench"});
  Help help;
  if (!run(app, argc, argv, help)) return help;
  options.given = parsed.finish();
  return options;
}

int run_trainer(int argc, const char* const* argv, const FixedStack& fixed,
                FunctionRef<void(FlagSet&, ModelChoice&)> bind_own, FunctionRef<int(const TrainOptions&)> train) {
  return run_program([&]() -> int {
    const auto command = parse_train(argc, argv, fixed, bind_own);
    if (const auto* help = std::get_if<Help>(&command)) return print_text(stdout, help->text), 0;
    return train(std::get<TrainOptions>(command));
  });
}

}  // namespace fsdp::train
