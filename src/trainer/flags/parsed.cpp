// SPDX-License-Identifier: Apache-2.0
#include "parsed.hpp"

#include <algorithm>
#include <cstdio>

#include <tessera/comm/launch/print.hpp>
#include <tessera/fsdp/core/error.hpp>
#include <tessera/fsdp/core/terminal_text.hpp>
#include <tessera/fsdp/training/program.hpp>
#include <tessera/trainer/flags/flag_values.hpp>
#include <tessera/trainer/flags/options.hpp>

namespace fsdp::train {
namespace {

/// Throws InputError for `--flag=`, and for a flag that is followed by another flag instead of its value.
void require_values(const CLI::App& program, int argc, const char* const* argv) {
  const auto commands =
      program.get_subcommands([&](const CLI::App* app) { return argc > 1 && app->check_name(argv[1]); });
  const CLI::App& app = commands.empty() ? program : *commands.front();
  const auto option_of = [&](const std::string& word) {
    return app.get_option_no_throw(word.substr(0, word.find('=')));
  };
  for (int i = 1; i < argc && argv[i] != std::string_view("--"); ++i) {
    const std::string word = argv[i];
    const CLI::Option* const option = word.starts_with("--") ? option_of(word) : nullptr;
    if (option == nullptr) continue;
    if (word.find('=') == word.size() - 1) require_value(option->get_name(), "");
    if (word.find('=') != word.npos || option->get_items_expected_min() == 0 || i + 1 == argc) continue;
    const std::string next = argv[++i];
    require<InputError>(!next.starts_with("--") || option_of(next) == nullptr, word, " has no value, ", next,
                        " follows; give it a value, or leave it out");
  }
}

CLI::Option* added(CLI::App& app, const Flag& flag) {
  if (flag.kind == FlagKind::boolean) return app.add_flag("--" + flag.name, flag.help);
  const bool list = flag.kind == FlagKind::list;
  CLI::Option* const option = app.add_option((flag.position ? "" : "--") + flag.name, flag.help);
  if (list) option->expected(CLI::detail::expected_max_vector_size);
  if (flag.position) return option->type_name("");
  const Texts present = flag.get();
  if (!present.empty() && !present[0].empty() && flag.missing.empty()) option->default_str(present[0]);
  return option->type_name(flag.kind == FlagKind::number ? "NUMBER"
                           : list && flag.between == ' ' ? "PATH"
                                                         : "TEXT")
      ->allow_extra_args();  // so that a second value gives an error that identifies the flag
}

void refuse_extras(const CLI::App& app, const FlagSet& flags) {
  const std::vector<std::string> extras = app.remaining();
  if (extras.empty()) return;
  const std::string word = extras.front().substr(0, extras.front().find('='));
  require<InputError>(word.starts_with("-"), "unexpected argument '", shortened(word),
                      "'; a value follows its flag, as in --data FILE. See --help");
  const std::string refusal = word.starts_with("--") ? flags.refusal(word.substr(2)) : "";
  require<InputError>(refusal.empty(), refusal);
  std::vector<std::string> known = flags.names();
  known.insert(known.end(), {"config", "help"});
  const std::string near = nearest(word.substr(std::min(word.find_first_not_of('-'), word.size())), known);
  throw InputError(message("unknown flag ", shortened(word),
                           near.empty() ? "; see --help" : "; did you mean --" + near + "? See --help"));
}

}  // namespace

void add_options(CLI::App& app, FlagSet& flags, const std::string& section, const std::vector<std::string>& sections) {
  app.allow_extras();
  CLI::Option* const config = app.add_option("--config", "TOML file with any of these flags; the command line wins");
  config->type_name("FILE");
  std::vector<CLI::Option*> options;
  for (const Flag& flag : flags.flags()) {
    options.push_back(added(app, flag));
    if (flag.hidden) options.back()->group("");
  }
  app.callback([=, &app, &flags] {
    refuse_extras(app, flags);
    for (const std::string& path : config->results()) {
      require_value("--config", path);
      apply_file(flags, path, section, sections);
    }
    for (std::size_t i = 0; i < options.size(); ++i) {
      Flag& flag = flags.flags()[i];
      if (options[i]->count() > 0) flag.give(options[i]->reduced_results()), flag.given = true;
    }
    for (const Flag& flag : flags.flags()) require<InputError>(flag.given || flag.missing.empty(), flag.missing);
  });
}

std::optional<Help> run(CLI::App& app, int argc, const char* const* argv) {
  require_values(app, argc, argv);
  try {
    app.parse(argc, const_cast<char**>(argv));  // CLI11 2.1 requires char**, but does not modify it
  } catch (const CLI::CallForHelp&) {
    return Help{app.help()};
  } catch (const CLI::ArgumentMismatch& error) {
    const bool several = std::string_view(error.what()).find("At Most") != std::string_view::npos;
    throw InputError(message(error.what(), several ? "; give the flag once, with one value" : "; give it a value"));
  } catch (const CLI::ParseError& error) {
    throw InputError(error.what());
  }
  return std::nullopt;
}

std::variant<Help, Bound<TrainOptions>> parse_train(int argc, const char* const* argv, const FixedStack& fixed,
                                                    FunctionRef<void(FlagSet&, ModelChoice&)> bind_own) {
  CLI::App app("Trains a model on text.");
  Bound<TrainOptions> options;
  FlagSet& flags = options.flags;
  options->sequence = fixed.sequence;
  bind(flags, *options);
  bind_own(flags, options->model);
  if (fixed.starts_ranks)
    flags.add(Effect::chosen, "ranks", options->launch.ranks, "that this program starts, and of the dry run",
              counts_up_to(most_started_ranks));
  else
    flags.add(Effect::chosen, "ranks", options->ranks, "of the dry run; 0: those that were launched",
              counts_up_to(most_ranks, 0));
  for (const char* const name : {"sharding", "layout", "sharding-of"}) flags.fix(name, fixed.sharding);
  flags.fix("precision", fixed.precision);
  if (!fixed.precision.ends_with("+fp32")) {  // the text of a PrecisionBy
    std::erase_if(flags.flags(), [](const Flag& flag) { return flag.name == "precision-of"; });
    flags.fix("precision-of", fixed.precision);
  }
  flags.fix("tiling", fixed.tiling);
  flags.fix("comm", fixed.comm);
  const bool optimizer = fixed.offloads_optimizer;
  flags.add(
      Effect::chosen, "offload",
      [&units = options->units, optimizer] {
        return OffloadFlag{.optimizer = optimizer, .inputs = units.offload_inputs};
      },
      [&units = options->units, optimizer, sharding = fixed.sharding](const OffloadFlag& flag) {
        require<InputError>(!flag.optimizer || optimizer, "--offload optimizer is fixed by this program: ", sharding);
        require<InputError>(flag != OffloadFlag{} || !optimizer, "--offload none is fixed by this program: ", sharding);
        units.offload_inputs = flag.inputs;
      },
      message(optimizer ? "optimizer | optimizer,inputs | optimizer,inputs:SHARE (" : "none | inputs | inputs:SHARE (",
              offloaded_inputs_help, ")"));
  add_options(app, flags, "train", {"train", "eval", "generate", "bench"});
  if (auto help = run(app, argc, argv)) return *help;
  return options;
}

int run_trainer(int argc, const char* const* argv, const FixedStack& fixed,
                FunctionRef<void(FlagSet&, ModelChoice&)> bind_own,
                FunctionRef<int(const Bound<TrainOptions>&)> train) {
  return run_program([&]() -> int {
    const auto command = parse_train(argc, argv, fixed, bind_own);
    if (const auto* help = std::get_if<Help>(&command)) return print_text(stdout, help->text), 0;
    return train(std::get<Bound<TrainOptions>>(command));
  });
}

}  // namespace fsdp::train
