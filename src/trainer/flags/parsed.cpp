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
#include <tessera/trainer/flags/offload_flag.hpp>
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

Parsed::Parsed(CLI::App& app, FlagSet& flags, std::string section, std::vector<std::string> sections)
    : app_(app), flags_(flags), section_(std::move(section)), sections_(std::move(sections)) {
  app_.allow_extras();
  config_ = app_.add_option("--config", "TOML file with any of these flags; the command line wins")->type_name("FILE");
  for (const Flag& flag : flags_.flags()) {
    options_.push_back(added(flag));
    if (flag.hidden) options_.back()->group("");
  }
}

void Parsed::finish() {
  refuse_extras();
  for (const std::string& path : config_->results()) {
    require_value("--config", path);
    apply_file(flags_, path, section_, sections_);
  }
  for (std::size_t i = 0; i < options_.size(); ++i) {
    if (options_[i]->count() == 0) continue;
    Flag& flag = flags_.flags()[i];
    flag.give(options_[i]->reduced_results());
    flag.given = true;
  }
}

CLI::Option* Parsed::added(const Flag& flag) {
  if (flag.kind == FlagKind::boolean) return app_.add_flag("--" + flag.name, flag.help);
  CLI::Option* option = app_.add_option((flag.position ? "" : "--") + flag.name, flag.help);
  if (flag.kind == FlagKind::list) option->expected(CLI::detail::expected_max_vector_size);
  option->type_name(flag.position                   ? ""
                    : flag.value_name != nullptr    ? flag.value_name
                    : flag.kind == FlagKind::list   ? "PATH"
                    : flag.kind == FlagKind::number ? "NUMBER"
                                                    : "TEXT");
  if (flag.position) return option;
  option->allow_extra_args();  // so that a second value is an error that names the flag
  const std::vector<std::string> present = flag.get();
  if (!present.empty() && !present.front().empty()) option->default_str(present.front());
  return option;
}

void Parsed::refuse_extras() const {
  const std::vector<std::string> extras = app_.remaining();
  if (extras.empty()) return;
  const std::string word = extras.front().substr(0, extras.front().find('='));
  require<InputError>(word.starts_with("-"), "unexpected argument '", shortened(word),
                      "'; a value follows its flag, as in --data FILE. See --help");
  const std::string refusal = word.starts_with("--") ? flags_.refusal(word.substr(2)) : "";
  require<InputError>(refusal.empty(), refusal);
  std::vector<std::string> known = flags_.names();
  known.insert(known.end(), {"config", "help"});
  const std::string near = nearest(word.substr(std::min(word.find_first_not_of('-'), word.size())), known);
  throw InputError(message("unknown flag ", shortened(word),
                           near.empty() ? "; see --help" : "; did you mean --" + near + "? See --help"));
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
  flags.fix("sharding", fixed.sharding);
  flags.fix("precision", fixed.precision);
  flags.fix("tiling", fixed.tiling);
  flags.fix("comm", fixed.comm);
  flags.fix("layout", fixed.sharding);
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
  Parsed parsed(app, flags, "train", {"train", "eval", "generate", "bench"});
  Help help;
  if (!run(app, argc, argv, help)) return help;
  parsed.finish();
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
