// SPDX-License-Identifier: Apache-2.0
#include <fsdp/train/flags.hpp>

#include <algorithm>
#include <map>
#include <memory>
#include <utility>

#include <CLI/CLI.hpp>

#include <fsdp/core/error.hpp>
#include <fsdp/core/nearest.hpp>

#include "commands.hpp"
#include "flag_set.hpp"

namespace fsdp::cli {
namespace {

const std::vector<std::string> command_names = {"train", "eval", "generate", "bench"};
const std::vector<std::string> bench_names = {"mlp", "attention", "head", "step", "comm", "optim"};

/// One sub-command while it is parsed: CLI11 collects texts, which the flags then read.
class Parsed {
 public:
  Parsed(CLI::App& app, FlagSet flags, std::string section)
      : app_(app), flags_(std::move(flags)), section_(std::move(section)) {
    app_.allow_extras();
    app_.add_option("--config", config_, "TOML file with any of these flags; the command line wins")->type_name("FILE");
    for (const Flag& flag : flags_.flags()) add(flag);
  }

  /// Checks for unknown flags, then sets fields: first from the file, then from the command line.
  std::vector<std::string> finish() {
    refuse_extras();
    std::vector<std::string> given;
    if (!config_.empty()) given = apply_file(flags_, config_, section_, command_names);
    for (const Flag& flag : flags_.flags()) {
      const CLI::Option* option = app_.get_option("--" + flag.name);
      if (option->count() == 0) continue;
      flag.set(texts_[flag.name]);
      given.push_back(flag.name);
    }
    std::ranges::sort(given);
    given.erase(std::unique(given.begin(), given.end()), given.end());
    return given;
  }

 private:
  void add(const Flag& flag) {
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

  void refuse_extras() const {
    const std::vector<std::string> extras = app_.remaining();
    if (extras.empty()) return;
    const std::string word = extras.front().substr(0, extras.front().find('='));
    require<InputError>(word.starts_with("-"), "unexpected argument '", word, "'");
    std::vector<std::string> known = flags_.names("--");
    known.insert(known.end(), {"--config", "--help"});
    throw InputError(message("unknown flag ", word, "; did you mean ", nearest(word, known), "? See --help"));
  }

  CLI::App& app_;
  FlagSet flags_;
  std::string section_, config_;
  std::map<std::string, std::vector<std::string>> texts_;
};

template <class Options>
std::unique_ptr<Parsed> declare(CLI::App& app, Options& options, const std::string& section) {
  FlagSet flags;
  bind(flags, options);
  return std::make_unique<Parsed>(app, std::move(flags), section);
}

/// Runs CLI11; its help is an answer, its errors are ours.
bool run(CLI::App& app, int argc, const char* const* argv, Help& help) {
  try {
    app.parse(argc, const_cast<char**>(argv));  // NOLINT: CLI11 2.1 takes char** and writes nothing
  } catch (const CLI::CallForHelp&) {
    help.text = app.help();
    return false;
  } catch (const CLI::ParseError& error) {
    throw InputError(error.what());
  }
  return true;
}

void require_model(const std::string& model) {
  require<InputError>(!model.empty(), "--model is missing; give a folder with config.json and model.safetensors");
}

}  // namespace

Command parse(int argc, const char* const* argv) {
  CLI::App app("Trains transformers whose weights are sharded over ranks and whose sequences are cut into tiles.",
               "tessera");
  app.allow_extras();
  app.require_subcommand(0, 1);
  train::TrainOptions train;
  train::EvalOptions eval;
  train::GenerateOptions generate;
  bench::BenchOptions bench;
  CLI::App& train_app = *app.add_subcommand("train", "train a model on text");
  CLI::App& eval_app = *app.add_subcommand("eval", "mean loss of a model over text, as JSON");
  CLI::App& generate_app = *app.add_subcommand("generate", "write text with a trained model");
  CLI::App& bench_app = *app.add_subcommand("bench", "measure; one JSON object a line");
  bench_app.add_option("what", bench.what, "mlp | attention | head | step | comm | optim")->type_name("");
  const auto train_flags = declare(train_app, train, "train");
  const auto eval_flags = declare(eval_app, eval, "eval");
  const auto generate_flags = declare(generate_app, generate, "generate");
  const auto bench_flags = declare(bench_app, bench, "bench");

  Help help;
  if (!run(app, argc, argv, help)) return help;
  if (train_app.parsed()) {
    train.given = train_flags->finish();
    return train;
  }
  if (eval_app.parsed()) {
    eval.given = eval_flags->finish();
    require_model(eval.model);
    require<InputError>(!eval.data.empty(), "--data is missing; give files or folders of text");
    return eval;
  }
  if (generate_app.parsed()) {
    generate.given = generate_flags->finish();
    require_model(generate.model);
    return generate;
  }
  if (bench_app.parsed()) {
    bench.given = bench_flags->finish();
    require<InputError>(std::ranges::find(bench_names, bench.what) != bench_names.end(), "bench: no bench is called '",
                        bench.what, "'; ", suggestion(bench.what, bench_names));
    return bench;
  }
  const std::vector<std::string> extras = app.remaining();
  if (extras.empty()) throw InputError("no command was given; known: train, eval, generate, bench. See --help");
  throw InputError(message("unknown command '", extras.front(), "'; ", suggestion(extras.front(), command_names)));
}

std::variant<Help, train::TrainOptions> parse_train(int argc, const char* const* argv) {
  CLI::App app("Trains a model on text.");
  train::TrainOptions options;
  const auto flags = declare(app, options, "train");
  Help help;
  if (!run(app, argc, argv, help)) return help;
  options.given = flags->finish();
  return options;
}

namespace {

template <class Options>
std::string toml_of(Options options) {
  FlagSet flags;
  bind(flags, options);
  return write_toml(flags);
}

}  // namespace

std::string to_toml(const train::TrainOptions& options) { return toml_of(options); }
std::string to_toml(const train::EvalOptions& options) { return toml_of(options); }
std::string to_toml(const train::GenerateOptions& options) { return toml_of(options); }

}  // namespace fsdp::cli
