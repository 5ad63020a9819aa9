// SPDX-License-Identifier: Apache-2.0
#include "commands.hpp"

#include <algorithm>
#include <limits>

#include <tessera/fsdp/core/error.hpp>
#include <tessera/fsdp/core/terminal_text.hpp>
#include <tessera/fsdp/models/llama_config.hpp>
#include <tessera/fsdp/plan/cluster.hpp>
#include <tessera/trainer/flags/flag_values.hpp>
#include <tessera/trainer/flags/model_choice.hpp>

#include "../../fsdp/core/value_names.hpp"
#include "../../trainer/flags/parsed.hpp"

namespace fsdp::cli {

using train::Effect;

namespace {

constexpr const char* offload_help = "none | optimizer (main weights and optimizer state stay in host memory)";

/// Adds a required positional argument.
template <class T>
void add_position(train::FlagSet& flags, const std::string& name, T& field, const std::string& help,
                  const char* missing) {
  train::Flag& flag = flags.add(name, field, help);
  flag.position = true;
  flag.missing = missing;
}

/// Adds the flags of a stack, except --offload.
void bind_policies(train::FlagSet& flags, StackChoice& stack) {
  flags.add(Effect::chosen, "sharding", stack.sharding, sharding_help());
  flags.add(
      Effect::chosen, "layout", stack.sharding.layout,
      "default | per-parameter | flat | rows (no row is cut) | owned (no tensor is cut) | blocks (no row, no head "
      "of attention and no matrix of muon is cut) | blocks:N (N consecutive elements in place of a row); default: "
      "per-parameter with fsdp2, flat with zero1, zero2, zero3 and replicated");
  flags
      .add(Effect::chosen, "sharding-of", stack.sharding.units,
           "another strategy of some tensors, such as 'embed_tokens|lm_head=replicated': a pattern of names of tensors "
           "or "
           "units, or of a part of a name, also with ,role=matrix|table|vector ,least=N and ,most=N elements, and a "
           "strategy as of --sharding, with :layout=LAYOUT, without numbers of the whole module")
      .between = '\n';
  flags.add(
      Effect::chosen, "precision", stack.precision,
      "fp32 | bf16 (bf16 compute, fp32 main weights and reduction) | bf16:wire=bf16 (gradients rounded to bf16 on the "
      "wire)");
  if (train::Flag* const floats = flags.find("precision-of"))  // bound with the command's options
    floats->set = [set = floats->set, &stack](const train::Texts& texts) {
      set(texts);
      stack.has_float_weights = !texts.empty();
    };
  flags.add(Effect::chosen, "tiling", stack.tiling,
            "off | tiles:N | tokens:N | budget:BYTES (as 512MiB, for what is kept and a tile) | budget:auto (train: "
            "what --memory leaves)");
  flags.add(Effect::chosen, "comm", stack.comm, "self | threads:N | mpi | nccl");
}

/// Adds the flags that `train` and `plan` have in common.
void bind_step(train::FlagSet& flags, Train& command) {
  bind(flags, command.options);
  train::bind_model<LlamaConfig>(flags, command.options.model);
  bind(flags, command.optimizer);
  flags.add(Effect::chosen, "ranks", command.options.ranks, "number of ranks for --dry-run; 0: those of --comm",
            train::counts_up_to(train::most_ranks, 0));
  bind(flags, command.stack, command.options.units.offload_inputs, train::offloaded_inputs_help);
}

}  // namespace

void bind(train::FlagSet& flags, StackChoice& stack) {
  bind_policies(flags, stack);
  flags.add(Effect::chosen, "offload", stack.offload, offload_help);
}

void bind(train::FlagSet& flags, StackChoice& stack, double& offloaded_inputs, const std::string& help) {
  bind_policies(flags, stack);
  const auto load = [&stack, &offloaded_inputs] {
    return train::OffloadFlag{.optimizer = stack.offload == OffloadChoice::optimizer, .inputs = offloaded_inputs};
  };
  const auto store = [&stack, &offloaded_inputs](const train::OffloadFlag& flag) {
    stack.offload = flag.optimizer ? OffloadChoice::optimizer : OffloadChoice::none;
    offloaded_inputs = flag.inputs;
  };
  flags.add(Effect::chosen, "offload", load, store,
            message(offload_help, " | inputs | inputs:SHARE (", help, ") | optimizer,inputs:SHARE"));
}

void bind(train::FlagSet& flags, Train& command) {
  bind_step(flags, command);
  flags.refuse("fit",
               "is no longer a flag of train; tessera plan --fit --cluster NAME prints the flags of the fastest "
               "configurations, which train accepts unchanged");
}

void from_text(std::string_view flag, std::string_view text, ExportType& value) {
  std::vector<std::string> names;
  for (const DType dtype : {DType::f32, DType::bf16, DType::f16}) {
    value.dtype = dtype;
    names.emplace_back(name_of(dtype));
    if (names.back() == text) return;
  }
  refuse_unknown(flag, text, names);
}
std::string to_text(ExportType value) { return std::string(name_of(value.dtype)); }

void bind(train::FlagSet& flags, Plan& command) {
  flags.add("json", command.plan.json, "one JSON object, in bytes and seconds");
  bind_step(flags, command.train);
  flags.add("document-length", command.train.options.document_length,
            "tokens of a typical document, which attention does not leave (--data-format chat, --document-separator); "
            "0: counted as whole sequences",
            train::counts_up_to(train::most_tokens, 0));
  flags.add("fit", command.fit,
            "look for the fastest ways that fit, in all that the other flags leave open: strategies, groups, "
            "micro-batches, shared sequences, tiles, recomputation, offloading; results stay those of the same "
            "batches");
  std::string names;
  for (const std::string& name : plan::known_cluster_names()) names += (names.empty() ? "" : ", ") + name;
  flags.find("cluster")->help = message("a TOML file of a cluster's figures, or one that is known: ", names);
  flags.find("cluster")->missing = message("--cluster is missing; give a TOML file, or a name: ", names);
  flags.find("ranks")->help = "ranks in place of the cluster's own; 0: those";
  flags.find("comm")->help =
      "threads | mpi | nccl; left out: nccl for GPUs, mpi for several nodes of CPUs, else threads";
  for (const char* const other : {"memory", "dry-run", "print-schedule"}) flags.find(other)->hidden = true;
  flags.find("trace")->help = "file for a trace of the virtual step, as train --trace writes one of a run";
}

void bind(train::FlagSet& flags, Calibrate& command) {
  flags.add("out", command.out, "the cluster's file to write; left out: printed");
  flags.add("repeats", command.repeats, "of each measurement; the median is taken, and the spread noted",
            train::counts_up_to(1000));
  flags.add(Effect::chosen, "comm", command.comm,
            "self | threads:N | mpi | nccl: the ranks that measure at the same time");
  bind(flags, command.launch);
}

void bind(train::FlagSet& flags, Export& command) {
  const char* const missing = "export: give a checkpoint and the folder to make: tessera export CHECKPOINT OUT";
  add_position(flags, "CHECKPOINT", command.from, "a step, a directory of steps, or a model", missing);
  add_position(flags, "OUT", command.to, "the folder to make", missing);
  flags.add("dtype", command.type, "f32 | bf16 | f16");
  flags.add("shard-bytes", command.shard_bytes, "largest size of a file of weights; a larger model is split",
            train::counts_up_to(std::numeric_limits<std::int64_t>::max()));
  flags.add("adapter", command.adapter, "folder of adapters, as PEFT writes it, for the model");
  flags.add("merge", command.merge,
            "merge the adapters into the weights; without it only the adapters are written, in PEFT's format");
  flags.add("files-from", command.files_from,
            "folder whose tokenizer's files and generation_config.json are copied instead of the checkpoint's");
}
void bind(train::FlagSet& flags, Inspect& command) {
  add_position(flags, "FOLDER", command.folder, "a model's folder, a checkpoint or a directory of them",
               "inspect: give a folder: tessera inspect FOLDER");
  flags.add("quick", command.quick, "read the headers of weights alone, neither their checksums nor their values");
}
void bind(train::FlagSet& flags, Plot& command) {
  add_position(flags, "METRICS", command.files, "files that train --metrics wrote",
               "plot: give metrics files: tessera plot METRICS...");
  flags.add("out", command.out, "the picture to write");
}
void bind(train::FlagSet& flags, Diff& command) {
  const char* const missing = "diff: give two files of digests, or folders with tensors: tessera diff A B";
  add_position(flags, "A", command.a, "a file that train --digests wrote, or a folder of replay --tensors", missing);
  add_position(flags, "B", command.b, "another one", missing);
}

void bind(train::FlagSet& flags, Replay& command) {
  train::ReplayRequest& request = command.request;
  add_position(flags, "CHECKPOINTS", request.folder, "the run's --checkpoint-dir; it stays as it is",
               "replay: give the folder of the run's checkpoints: tessera replay CHECKPOINTS --step N");
  flags.add("step", request.step, "number of the step to compute again", train::counts_up_to(train::most_steps))
      .missing = "--step is missing; give the number of a step, from 1 on";
  flags.add("digests", request.digests, "file to append the step's digests to, as train --digests does");
  flags.add("against", request.against,
            "what the run itself wrote, its --digests or --metrics, or another replay's --tensors: compare with it");
  flags.add("tensors", request.tensors, "new folder for the step's digests, streams, gradients and weights");
  flags.add("unit", request.choice.unit, "of the tensors, those of this unit, such as 'block 2'");
  flags.add("piece", request.choice.piece, "of the streams, those of this piece, from 0 on",
            train::counts_up_to(train::most_sequences, 0));
  flags.add("data", command.data, "the run's data; left out: where they were");
  flags.add("tokenizer", command.tokenizer,
            "tokenizer.json, or its folder; left out: the one in the checkpoint, or where the run had it");
  flags.add("token-cache", command.token_cache,
            "folder to keep tokens in; left out: the run's if it has them, or a temporary one");
  flags.add("sharding", command.sharding, "another strategy of as many pieces; left out: the run's");
  flags.add("comm", command.comm,
            "self | threads:N | mpi | nccl; left out: as many threads as share a sequence if the run had pieces, else "
            "as many as "
            "it had");
  bind_waits(flags, command.launch, true);  // the number of threads is that of the run
}

void bind(train::FlagSet& flags, Tokenize& command) {
  data::TokenizeRequest& o = command.request;
  const char* const missing =
      "tokenize: give texts, their tokenizer and the folder to make: tessera tokenize INPUT... "
      "--tokenizer FOLDER --out FOLDER";
  add_position(flags, "INPUT", command.inputs, "files, or folders of them; .jsonl holds a document a line", missing);
  flags.add("tokenizer", command.tokenizer, "tokenizer.json, or a model's folder that has one").missing = missing;
  flags.add("out", command.out, "folder for the token files; an interrupted run is continued").missing = missing;
  flags.add("text-field", o.field, "key of the text in each record of JSON");
  flags
      .add("end-token", o.end_token,
           "token to append to each document, by name; left out: the eos_token of tokenizer_config.json or "
           "special_tokens_map.json; none: no token")
      .kind = train::FlagKind::verbatim;
  flags.add("shard-tokens", o.shard_tokens, "most tokens of one file",
            train::counts_up_to(std::numeric_limits<std::int32_t>::max()));
  flags.add("threads", o.threads, "0: all cores", train::thread_counts);
}

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
  const std::string last = shortened(argv[argc - 1]);
  require<InputError>(first != "--version" || argc == 2, "version takes no words, and got '", last, "'");
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
