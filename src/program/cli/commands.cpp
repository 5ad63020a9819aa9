// SPDX-License-Identifier: Apache-2.0
#include "commands.hpp"

#include <algorithm>
#include <string>
#include <utility>
#include <vector>

#include <tessera/fsdp/core/error.hpp>
#include <tessera/fsdp/core/nearest.hpp>
#include <tessera/fsdp/core/terminal_text.hpp>

#include "../../trainer/flags/parsed.hpp"

namespace fsdp::cli {
namespace {

const std::vector<std::string> command_names = {"train",    "eval", "generate", "chat",   "export", "inspect",
                                                "tokenize", "plot", "diff",     "replay", "bench",  "stacks"};
const std::vector<std::string> bench_names = {"mlp",  "attention", "head",   "step",  "generate",
                                              "load", "comm",      "matmul", "optim", "tokenize"};

/// A sub-command, its options and its flags.
template <class Options>
class Declared {
 public:
  Declared(CLI::App& program, const std::string& name, const std::string& help)
      : app_(*program.add_subcommand(name, help)), parsed_(app_, flags(), name, command_names) {}

  CLI::App& app() { return app_; }
  bool asked_for() const { return app_.parsed(); }
  Options& options() { return options_; }
  std::vector<std::string> finish() { return parsed_.finish(); }

 private:
  train::FlagSet flags() {
    train::FlagSet flags;
    bind(flags, options_);
    return flags;
  }

  Options options_;
  CLI::App& app_;
  train::Parsed parsed_;
};

void require_model(const std::string& model) {
  require<InputError>(!model.empty(), "--model is missing; give a folder with config.json and weights");
}

bench::BenchOptions checked(bench::BenchOptions bench) {
  require<InputError>(std::ranges::find(bench_names, bench.what) != bench_names.end(), "bench: no bench is called '",
                      bench.what, "'; ", suggestion(bench.what, bench_names));
  return bench;
}

}  // namespace

Command parse(int argc, const char* const* argv) {
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
  Declared<Eval> eval(app, "eval", "mean loss of a model over text, as JSON");
  Declared<Generate> generate(app, "generate", "write text with a trained model");
  Declared<Chat> chat(app, "chat", "talk to a model in the terminal; /reset begins anew, /quit ends");
  Declared<Export> exported(app, "export", "a checkpoint as a folder that transformers opens");
  exported.app()
      .add_option("CHECKPOINT", exported.options().from, "a step, a directory of steps, or a model")
      ->type_name("");
  exported.app().add_option("OUT", exported.options().to, "the folder to make")->type_name("");
  Declared<Inspect> inspect(app, "inspect", "what a model's folder holds, takes to train, and what is wrong with it");
  inspect.app()
      .add_option("FOLDER", inspect.options().folder, "a model's folder, a checkpoint or a directory of them")
      ->type_name("");
  Declared<Tokenize> tokenize(app, "tokenize", "text and JSONL as token files");
  tokenize.app()
      .add_option("INPUT", tokenize.options().inputs, "files, or folders of them; .jsonl holds a document a line")
      ->type_name("");
  Declared<Plot> plot(app, "plot", "curves of one or several runs as a picture (SVG)");
  plot.app().add_option("METRICS", plot.options().files, "files that train --metrics wrote")->type_name("");
  Declared<Diff> diff(app, "diff", "where the digests of two runs part; status 1 if they do");
  diff.app()
      .add_option("A", diff.options().a, "a file that train --digests wrote, or a folder of replay --tensors")
      ->type_name("");
  diff.app().add_option("B", diff.options().b, "another one")->type_name("");
  Declared<Replay> replay(
      app, "replay", "a step of a run computed again, on any ranks; with --against, status 1 if the run's was another");
  replay.app()
      .add_option("CHECKPOINTS", replay.options().request.folder, "the run's --checkpoint-dir; it stays as it is")
      ->type_name("");
  Declared<bench::BenchOptions> bench(app, "bench", "measure; one JSON object a line");
  bench.app()
      .add_option("what", bench.options().what,
                  "mlp | attention | head | step | generate | load | comm | matmul | optim | tokenize")
      ->type_name("");
  CLI::App& stacks = *app.add_subcommand("stacks", "what is compiled into this program, and what could be");

  train::Help help;
  if (!run(app, argc, argv, help)) return help;
  if (version) return Version{};
  if (train.asked_for()) {
    train.options().options.given = train.finish();
    (void)resolve(train.options().optimizer);  // reports an invalid choice before anything starts
    return train.options();
  }
  if (eval.asked_for()) {
    eval.options().options.given = eval.finish();
    require_model(eval.options().options.model);
    require<InputError>(!eval.options().options.data.empty(), "--data is missing; give files or folders of text");
    return eval.options();
  }
  if (generate.asked_for()) {
    generate.options().options.given = generate.finish();
    require_model(generate.options().options.model);
    return generate.options();
  }
  if (chat.asked_for()) {
    chat.options().options.generate.given = chat.finish();
    require_model(chat.options().options.generate.model);
    return chat.options();
  }
  if (exported.asked_for()) {
    exported.finish();
    require<InputError>(!exported.options().from.empty() && !exported.options().to.empty(),
                        "export: give a checkpoint and the folder to make: tessera export CHECKPOINT OUT");
    return exported.options();
  }
  if (inspect.asked_for()) {
    inspect.finish();
    require<InputError>(!inspect.options().folder.empty(), "inspect: give a folder: tessera inspect FOLDER");
    return inspect.options();
  }
  if (tokenize.asked_for()) {
    tokenize.finish();
    const Tokenize& told = tokenize.options();
    require<InputError>(!told.inputs.empty() && !told.tokenizer.empty() && !told.out.empty(),
                        "tokenize: give texts, their tokenizer and the folder to make: tessera tokenize INPUT... "
                        "--tokenizer FOLDER --out FOLDER");
    return told;
  }
  if (plot.asked_for()) {
    plot.finish();
    require<InputError>(!plot.options().files.empty(), "plot: give metrics files: tessera plot METRICS...");
    return plot.options();
  }
  if (diff.asked_for()) {
    diff.finish();
    require<InputError>(!diff.options().a.empty() && !diff.options().b.empty(),
                        "diff: give two files of digests, or folders with tensors: tessera diff A B");
    return diff.options();
  }
  if (replay.asked_for()) {
    replay.finish();
    require<InputError>(!replay.options().request.folder.empty(),
                        "replay: give the folder of the run's checkpoints: tessera replay CHECKPOINTS --step N");
    require<InputError>(replay.options().step.has_value(), "--step is missing; give the number of a step, from 1 on");
    replay.options().request.step = *replay.options().step;
    return replay.options();
  }
  if (bench.asked_for()) {
    bench.options().given = bench.finish();
    (void)resolve(bench.options().optimizer);
    return checked(bench.options());
  }
  if (stacks.parsed()) return Stacks{};
  const std::vector<std::string> extras = app.remaining();
  if (extras.empty())
    throw InputError(
        "no command was given; known: train, eval, generate, chat, export, inspect, tokenize, plot, diff, replay, "
        "bench, stacks. See --help");
  throw InputError(
      message("unknown command '", shortened(extras.front()), "'; ", suggestion(extras.front(), command_names)));
}

}  // namespace fsdp::cli
