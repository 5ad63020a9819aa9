// SPDX-License-Identifier: Apache-2.0
#include "src/program/cli/commands.hpp"

#include <functional>
#include <utility>

#include <gtest/gtest.h>

#include <tessera/fsdp/core/policy_text.hpp>
#include <tessera/fsdp/models/llama_config.hpp>
#include <tessera/fsdp/precision/by_tensor.hpp>
#include <tessera/fsdp/sharding/strategies.hpp>
#include <tessera/trainer/flags/flag_values.hpp>
#include <tessera/trainer/flags/model_choice.hpp>
#include <tessera/trainer/run/resumed.hpp>

#include "support/choices.hpp"
#include "support/temporary_folder.hpp"

namespace fsdp::cli {
namespace {

using test::TemporaryFolder;
using train::TrainOptions;

Command parse_words(std::vector<const char*> words) {
  words.insert(words.begin(), "tessera");
  return parse(static_cast<int>(words.size()), words.data());
}

template <class Options>
Options options_of(std::vector<const char*> words) {
  return *std::get<Bound<Options>>(parse_words(std::move(words)));
}

Bound<Train> bound_of(std::vector<const char*> words) {
  words.insert(words.begin(), "train");
  return std::get<Bound<Train>>(parse_words(std::move(words)));
}
Train command_of(std::vector<const char*> words) { return *bound_of(std::move(words)); }
TrainOptions train_of(std::vector<const char*> words) { return command_of(std::move(words)).options; }

std::vector<std::string> given(const train::FlagSet& flags) {
  std::vector<std::string> names;
  for (const train::Flag& flag : flags.flags())
    if (flag.given) names.push_back(flag.name);
  return names;
}

/// Options in which every field differs from its default.
Train everything() {
  Train command;
  TrainOptions& o = command.options;
  o.data = {"a b", "c\"d\\e\n", "ä"};
  o.model = {.name = "tiny",
             .values = {{"hidden", "64"},
                        {"layers", "2"},
                        {"heads", "4"},
                        {"kv-heads", "1"},
                        {"head-dim", "8"},
                        {"intermediate", "100"},
                        {"vocab", "300"},
                        {"tied", "false"},
                        {"rms-norm-eps", "1e-06"},
                        {"rope-theta", "500"},
                        {"max-position-embeddings", "99"},
                        {"lora-rank", "4"},
                        {"lora-alpha", "8"},
                        {"lora-dropout", "0.25"},
                        {"lora-rslora", "true"},
                        {"lora-targets", "q_proj,mlp.*"}},
             .adapter = "adapters"};
  command.optimizer = {.name = "muon",
                       .constants = {{"momentum", "0.5"},
                                     {"nesterov", "false"},
                                     {"iterations", "3"},
                                     {"weight-decay", "0.05"},
                                     {"beta1", "0.8"},
                                     {"beta2", "0.99"},
                                     {"eps", "1e-12"}}};
  o.steps = 7, o.seq_len = 33, o.batch_size = 6, o.grad_accum = 3, o.document_separator = 10;
  o.sequence = {.ranks = 2, .parts = 3};
  o.data_format = data::TokenFormat::u16;
  o.text.tokenizer = "tokenizer", o.text.end_token = "none", o.text.cache = "cache";
  o.text.chat_template = "chatml", o.text.learn = text::Learn::last, o.text.on_long = data::OnLong::cut;
  o.lr = 0.1 + 0.2, o.warmup = 5;
  o.lr_schedule = train::LrShape::wsd, o.lr_decay_steps = 2;
  o.clip = 0, o.seed = 0xffffffffffffffffu;
  o.validation_fraction = 0.25, o.validation_every = 3, o.validation_windows = 9, o.patience = 2;
  o.sample_prompt = "once", o.sample_tokens = 5;
  o.loss_scale = "dynamic:64";
  o.units = {.blocks_per_unit = 2,
             .merge_below = 100,
             .recompute = true,
             .offload_inputs = 0.1 + 0.2,
             .keep_last_block = false,
             .replicated = {"*norm*"},
             .frozen = {"a", "b*"},
             .groups = {{.parameters = "*.bias", .weight_decay = 0},
                        {.units = "block?1", .role = Role::vector, .lr = 0.1 + 0.2, .clip = 2.5},
                        {.parameters = "c", .frozen = true}}};
  o.checkpoint_dir = "out", o.checkpoint_every = 4, o.resume = "there", o.metrics = "m.jsonl", o.trace = "t.json";
  o.tensorboard = "board", o.digests = "d.jsonl", o.verify_every = 3;
  o.resume_anyway = true, o.on_signal = train::OnSignal::stop;
  o.cuda_graphs = train::CudaGraphs::on, o.log_every = 10, o.dry_run = true, o.ranks = 16, o.memory = "8GiB";
  o.print_schedule = true;
  o.launch = {.ranks = 1,
              .threads = 3,
              .deadline_seconds = 2.5,
              .start_deadline_seconds = 7,
              .device_deadline_seconds = 9,
              .windows = false,
              .reductions = train::Reductions::fast};
  command.stack = {.sharding = cli::parse_sharding("hybrid:2:full"),
                   .precision = PrecisionChoice::bf16_wire,
                   .offload = OffloadChoice::optimizer,
                   .tiling = cli::parse_tiling("tokens:512"),
                   .comm = cli::parse_comm("threads:4")};
  command.stack.sharding.layout = LayoutChoice::owned;
  return command;
}

TEST(Flags, DefaultsEqualThoseOfTheOptionsStruct) { EXPECT_EQ(command_of({}), Train()); }

TEST(Flags, ReadsACompleteTrainCommand) {
  const Bound<Train> bound = bound_of({"--model",
                                       "DIR",
                                       "--data",
                                       "DIR/text.bin",
                                       "--seq-len",
                                       "17",
                                       "--batch-size",
                                       "6",
                                       "--validation-fraction",
                                       "0",
                                       "--steps",
                                       "20",
                                       "--lr",
                                       "1e-3",
                                       "--lr-schedule",
                                       "constant",
                                       "--weight-decay",
                                       "0.1",
                                       "--clip",
                                       "0",
                                       "--precision",
                                       "fp32",
                                       "--metrics",
                                       "F"});
  const Train& command = *bound;
  const TrainOptions& o = command.options;
  EXPECT_EQ(o.data, std::vector<std::string>{"DIR/text.bin"});
  EXPECT_EQ(o.lr, 1e-3);
  EXPECT_EQ(o.clip, 0);
  EXPECT_EQ(command.optimizer.constants, (train::GivenValues{{"weight-decay", "0.1"}}));
  EXPECT_EQ(command.stack.precision, PrecisionChoice::fp32);
  EXPECT_EQ(given(bound.flags).size(), 12u);
  EXPECT_TRUE(bound.flags.is_given("batch-size") && !bound.flags.is_given("grad-accum"));
}

TEST(Flags, AListFlagTakesAllWordsUpToTheNextFlag) {
  const TrainOptions o = train_of({"--data", "a", "b", "c", "--steps=5"});
  EXPECT_EQ(o.data, (std::vector<std::string>{"a", "b", "c"}));
  EXPECT_EQ(o.steps, 5);
}

TEST(Flags, BooleanFlagsWorkWithAndWithoutAValue) {
  EXPECT_TRUE(train_of({"--dry-run"}).dry_run);
  EXPECT_FALSE(train_of({"--dry-run=false"}).dry_run);
  EXPECT_EQ(train_of({"--tied"}).model.values.at("tied"), "true");
  EXPECT_EQ(train_of({"--tied=false"}).model.values.at("tied"), "false");
  EXPECT_TRUE(train_of({}).model.values.empty());
}

TEST(Flags, GraphsAreOnOffOrAutomatic) {
  using train::CudaGraphs;
  const TemporaryFolder folder;
  const std::vector<std::pair<std::string, CudaGraphs>> values = {{"auto", CudaGraphs::automatic},
                                                                  {"on", CudaGraphs::on},
                                                                  {"off", CudaGraphs::off},
                                                                  {"true", CudaGraphs::on},
                                                                  {"false", CudaGraphs::off}};
  for (const auto& [text, value] : values) {
    EXPECT_EQ(train_of({"--cuda-graphs", text.c_str()}).cuda_graphs, value);
    const std::string path = folder.write("run.toml", "cuda-graphs = \"" + text + "\"\n").string();
    EXPECT_EQ(train_of({"--config", path.c_str()}).cuda_graphs, value);
  }
  EXPECT_INPUT_ERROR(train_of({"--cuda-graphs", "yes"}), "--cuda-graphs yes is not known; known: auto, on, off");
  EXPECT_INPUT_ERROR(train_of({"--cuda-graphs", "--steps", "3"}), "--cuda-graphs has no value, --steps follows");
}

TEST(Flags, AnUnknownFlagIsAnErrorThatSuggestsTheNearest) {
  EXPECT_INPUT_ERROR(train_of({"--stesp", "3"}), "unknown flag --stesp; did you mean --steps?");
  EXPECT_INPUT_ERROR(train_of({"--seq_len=3"}), "unknown flag --seq_len; did you mean --seq-len?");
  EXPECT_INPUT_ERROR(train_of({"--data", "x", "--lrr", "1"}), "did you mean --lr?");
  EXPECT_INPUT_ERROR(train_of({"stray"}), "unexpected argument 'stray'");
  EXPECT_INPUT_ERROR(parse_words({"trian"}), "unknown command 'trian'; did you mean 'train'?");
  EXPECT_INPUT_ERROR(parse_words({"trian", "--data", "x", "--data-format", "chat"}), "unknown command 'trian'");
  EXPECT_INPUT_ERROR(parse_words({"finetune", "--data", "x"}), "unknown command 'finetune'; known: train, plan,");
  EXPECT_INPUT_ERROR(train_of({"--nonsense"}), "unknown flag --nonsense; see --help");
  EXPECT_INPUT_ERROR(parse_words({"--data", "x", "train"}), "--data stands in front of the command");
  EXPECT_INPUT_ERROR(parse_words({}), "no command was given; known: train, plan,");
  EXPECT_INPUT_ERROR(parse_words({"bench", "mlp"}), "bench is a separate program, tessera_bench");
}

TEST(Flags, HelpAndVersionAreCommandsToo) {
  const auto help = [](std::vector<const char*> words) {
    return std::get<train::Help>(parse_words(std::move(words))).text;
  };
  EXPECT_EQ(help({"help"}), help({"--help"}));
  EXPECT_EQ(help({"help", "chat"}), help({"chat", "-h"}));
  EXPECT_NE(help({"help", "chat"}), help({"help"}));
  EXPECT_TRUE(std::holds_alternative<Version>(parse_words({"version"})));
  EXPECT_INPUT_ERROR(parse_words({"help", "trian"}), "unknown command 'trian'; did you mean 'train'?");
  EXPECT_INPUT_ERROR(parse_words({"help", "train", "eval"}), "help takes one command, and got 'eval' as well");
  EXPECT_INPUT_ERROR(parse_words({"version", "train"}), "version takes no words, and got 'train'");
}

TEST(Flags, BadValuesAreInputErrors) {
  EXPECT_INPUT_ERROR(train_of({"--steps", "1e3"}), "--steps '1e3' is not a whole number");
  EXPECT_INPUT_ERROR(train_of({"--steps", "99999999999999999999"}), "not a whole number");
  EXPECT_INPUT_ERROR(train_of({"--seed", "-1"}), "at least 0");
  EXPECT_INPUT_ERROR(train_of({"--lr", "fast"}), "not a number");
  EXPECT_INPUT_ERROR(train_of({"--lr", "nan"}), "not a finite number");
  EXPECT_INPUT_ERROR(train_of({"--lr-schedule", "cosin"}), "did you mean 'cosine'?");
  EXPECT_INPUT_ERROR(train_of({"--lr-decay-steps", "-1"}), "--lr-decay-steps -1 must be at least 0");
  EXPECT_INPUT_ERROR(train_of({"--sharding", "fsdp3"}), "did you mean 'fsdp2'?");
  EXPECT_INPUT_ERROR(train_of({"--dry-run=maybe"}), "maybe");
  EXPECT_THROW(train_of({"--steps"}), InputError);
  EXPECT_THROW(train_of({"--steps", "1", "--steps", "2"}), InputError);
  EXPECT_EQ(train_of({"--steps", "010"}).steps, 10);
  EXPECT_INPUT_ERROR(train_of({"--lr", "-1"}), "--lr -1 must be at least 0 and at most 1000");
  EXPECT_INPUT_ERROR(train_of({"--grad-accum", "4294967296"}), "must be at least 1 and at most 1048576");
  EXPECT_INPUT_ERROR(train_of({"--document-separator", "-1"}), "must be at least 0");
  EXPECT_INPUT_ERROR(train_of({"--data-format", "u6"}), "did you mean 'u16'?");
}

/// Calls f(command, flags) for each command.
template <class F>
void for_each_command(F f) {
  const auto one = [&]<class Options>(const char* command, Options options) {
    train::FlagSet flags;
    bind(flags, options);
    f(command, flags);
  };
  one("train", Train());
  one("eval", Eval());
  one("generate", Generate());
  one("chat", Chat());
  one("export", Export());
  one("tokenize", Tokenize());
  one("plot", Plot());
}

TEST(Flags, AnEmptyValueIsAnErrorForEveryFlag) {
  const TemporaryFolder folder;
  int checked = 0;
  for_each_command([&](const char* command, const train::FlagSet& flags) {
    for (const train::Flag& flag : flags.flags()) {
      if (flag.position) continue;
      const std::string name = "--" + flag.name, empty = name + " '' is empty; give it a value, or leave it out";
      EXPECT_EQ(test::input_error_of([&] { parse_words({command, (name + "=").c_str()}); }), empty) << command;
      const std::string path = folder.write("run.toml", flag.name + " = \"\"\n").string();
      EXPECT_EQ(test::input_error_of([&] { parse_words({command, "--config", path.c_str()}); }), path + ": " + empty);
      if (flag.kind == train::FlagKind::boolean) continue;
      EXPECT_EQ(test::input_error_of([&] { parse_words({command, name.c_str(), ""}); }), empty) << command;
      EXPECT_EQ(test::input_error_of([&] {
                  parse_words({command, name.c_str(), "--config", "c"});
                }),
                name + " has no value, --config follows; give it a value, or leave it out");
      ++checked;
    }
    EXPECT_INPUT_ERROR(parse_words({command, "--config", ""}), "--config '' is empty");
    EXPECT_INPUT_ERROR(parse_words({command, "--config="}), "--config '' is empty");
  });
  EXPECT_GT(checked, 150);
}

TEST(Flags, OnlyTextForTheModelMayBeWhiteSpace) {
  EXPECT_INPUT_ERROR(train_of({"--checkpoint-dir", " "}), "--checkpoint-dir ' ' is white space alone; give it a value");
  EXPECT_INPUT_ERROR(train_of({"--data", "a", "\t\n", "b"}), "is white space alone");
  EXPECT_INPUT_ERROR(train_of({"--data", "a", "", "b"}), "--data '' is empty");
  EXPECT_EQ(train_of({"--sample-prompt", "\n"}).sample_prompt, "\n");
  EXPECT_EQ(train_of({"--end-token", "\n"}).text.end_token, "\n");
  EXPECT_EQ(options_of<Chat>({"chat", "--model", "D", "--system", " "}).options.system, " ");
  EXPECT_INPUT_ERROR(parse_words({"chat", "--model", "D", "--system", ""}), "--system '' is empty");
}

TEST(Flags, EmptyPositionalArgumentsAreErrors) {
  EXPECT_INPUT_ERROR(parse_words({"inspect", ""}), "FOLDER '' is empty; give it a value");
  EXPECT_INPUT_ERROR(parse_words({"export", "", "out"}), "CHECKPOINT '' is empty");
  EXPECT_INPUT_ERROR(parse_words({"export", "in", ""}), "OUT '' is empty");
  EXPECT_INPUT_ERROR(parse_words({"tokenize", "a", "", "--tokenizer", "t", "--out", "o"}), "INPUT '' is empty");
  EXPECT_INPUT_ERROR(parse_words({"plot", ""}), "METRICS '' is empty");
}

TEST(Flags, MissingRequiredArgumentsAreErrors) {
  EXPECT_INPUT_ERROR(parse_words({"inspect"}), "inspect: give a folder: tessera inspect FOLDER");
  EXPECT_INPUT_ERROR(parse_words({"export", "in"}), "export: give a checkpoint and the folder to make: tessera export");
  EXPECT_INPUT_ERROR(parse_words({"tokenize", "a", "--out", "o"}), "tokenize: give texts, their tokenizer and the");
  EXPECT_INPUT_ERROR(parse_words({"plot"}), "plot: give metrics files: tessera plot METRICS...");
  EXPECT_INPUT_ERROR(parse_words({"diff", "a"}), "diff: give two files of digests, or folders with tensors");
  EXPECT_INPUT_ERROR(parse_words({"replay", "a"}), "--step is missing; give the number of a step, from 1 on");
  EXPECT_INPUT_ERROR(parse_words({"eval", "--model", "D"}), "--data is missing; give files or folders of text");
  EXPECT_INPUT_ERROR(parse_words({"plan"}), "--cluster is missing; give a TOML file, or a name: h100,");
  EXPECT_EQ(options_of<Replay>({"replay", "a", "--step", "3"}).request.step, 3);
}

TEST(Flags, AValueMayLookLikeAFlagOfAnotherCommand) {
  EXPECT_EQ(options_of<Generate>({"generate", "--model", "D", "--prompt", "--steps"}).options.prompt, "--steps");
  EXPECT_EQ(options_of<Generate>({"generate", "--model", "D", "--prompt=--seed"}).options.prompt, "--seed");
  EXPECT_EQ(train_of({"--sample-prompt", "train", "--steps", "5"}).steps, 5);
}

TEST(Flags, TheHelpOfEveryCommandListsItsFlags) {
  for (const char* command : {"train", "eval", "generate", "chat"}) {
    const std::string text = std::get<train::Help>(parse_words({command, "--help"})).text;
    for (const char* flag : {"--sharding", "--precision", "--tiling", "--comm", "--threads", "--config"})
      EXPECT_NE(text.find(flag), std::string::npos) << command << flag;
  }
  test::expect_parts(std::get<train::Help>(parse_words({"--help"})).text, {"generate"});
}

TEST(Flags, ReadsTheFlagsOfTheOtherCommands) {
  const auto eval = options_of<Eval>({"eval", "--model", "D", "--data", "f", "--seq-len", "9"}).options;
  EXPECT_EQ(eval.model, "D");
  EXPECT_EQ(eval.seq_len, 9);
  const auto generate =
      options_of<Generate>({"generate", "--model", "D", "--prompt", " ", "--tokens", "5", "--temperature", "0"})
          .options;
  EXPECT_EQ(generate.prompt, " ");
  EXPECT_EQ(generate.sampling.temperature, 0);
  const auto ids =
      options_of<Generate>({"generate", "--model", "D", "--prompt-ids", "1,2", "--prompt-ids", "3", "--top-k", "4",
                            "--top-p", "0.5", "--min-p", "0.25", "--repetition-penalty", "1.5", "--stop-ids", "2,3"})
          .options;
  EXPECT_EQ(ids.prompt_ids, (std::vector<std::string>{"1,2", "3"}));
  EXPECT_EQ(ids.stop_ids, std::vector<std::string>{"2,3"});
  EXPECT_EQ(ids.sampling, (train::Sampling{.top_k = 4, .top_p = 0.5, .min_p = 0.25, .repetition_penalty = 1.5}));
  const auto floats = [](auto command, const char* name, const char* data) {
    const auto found = options_of<decltype(command)>({name, "--model", "D", data, "--precision-of", "a=fp32"});
    EXPECT_TRUE(found.stack.has_float_weights) << name;
  };
  floats(Eval(), "eval", "--data=f"), floats(Generate(), "generate", "--seed=1"), floats(Chat(), "chat", "--seed=1");
  EXPECT_INPUT_ERROR(parse_words({"eval", "--data", "f"}), "--model is missing");
  EXPECT_INPUT_ERROR(parse_words({"generate"}), "--model is missing");
}

TEST(SequenceFlag, SetsHowManyRanksShareEachSequence) {
  EXPECT_EQ(train_of({"--sequence", "whole"}).sequence, Ulysses{});
  EXPECT_EQ(train_of({"--sequence", "ulysses:1"}).sequence, Ulysses{});
  EXPECT_EQ(train_of({"--sequence", "ulysses:8"}).sequence, Ulysses{.ranks = 8});
  EXPECT_EQ(train_of({"--sequence", "ulysses:8:parts=2"}).sequence, (Ulysses{.ranks = 8, .parts = 2}));
  EXPECT_INPUT_ERROR(train_of({"--sequence", "ulysses:1:parts=4"}),
                     "--sequence ulysses:1:parts=4: parts are of ranks that share a sequence; give ulysses:K");
  EXPECT_EQ(options_of<Eval>({"eval", "--model", "D", "--data", "f", "--sequence=ulysses:2"}).options.sequence.ranks,
            2);
  EXPECT_EQ(train::record_of(train_of({"--sequence", "ulysses:8"})).at("sequence"), "ulysses:8");
  EXPECT_INPUT_ERROR(train_of({"--sequence", "ulises:2"}),
                     "--sequence ulises:2 is not known; did you mean 'ulysses:K'?");
  EXPECT_INPUT_ERROR(train_of({"--sequence", "hole"}), "did you mean 'whole'?");
  EXPECT_INPUT_ERROR(train_of({"--sequence", "ulysses:0"}), "Known: whole, ulysses:K");
  EXPECT_INPUT_ERROR(train_of({"--sequence", "ulysses"}),
                     "ulysses does not say how many ranks share each sequence; write ulysses:K, such as ulysses:2");
  EXPECT_INPUT_ERROR(train_of({"--sequence", "ulysses:99999999999"}), "the number must be at most 2147483647");
  for (const char* command : {"generate", "chat"})
    EXPECT_INPUT_ERROR(
        parse_words({command, "--model", "D", "--sequence", "ulysses:2"}),
        "--sequence is fixed by this program: whole, since ranks that share a sequence cannot continue it");
}

TEST(ConfigFile, RoundTripsEveryOption) {
  const TemporaryFolder folder;
  Train written = everything();
  train::FlagSet flags;
  bind(flags, written);
  const std::string path = folder.write("run.toml", train::write_toml(flags)).string();
  const Bound<Train> read = bound_of({"--config", path.c_str()});
  EXPECT_EQ(given(read.flags).size(), 93u);
  EXPECT_EQ(*read, written);
}

TEST(Flags, PolicyModelAndOptimizerFlagsAreNotRecordedAsOptions) {
  Train command = everything();
  train::FlagSet all, others;
  bind(all, command);
  bind(others, command.options);
  EXPECT_EQ(train::write_toml(all, train::Effect::chosen), train::write_toml(others));
  const auto recorded = [](const train::FlagSet& flags) {
    return std::ranges::count(flags.flags(), train::Effect::results, &train::Flag::effect);
  };
  EXPECT_EQ(recorded(all), std::ssize(train::record_of(command.options)));
  EXPECT_EQ(recorded(all), recorded(others));
}

TEST(ConfigFile, TheCommandLineOverridesItAndSectionsOverrideTheTopLevel) {
  const TemporaryFolder folder;
  const std::string path =
      folder.write("run.toml", "steps = 5\nseq_len = 64\nlr = 1\n[train]\nlr = 0.5\n[eval]\nwindows = 3\n").string();
  const Bound<Train> bound = bound_of({"--steps", "9", "--config", path.c_str()});
  const TrainOptions& o = bound->options;
  EXPECT_EQ(o.steps, 9);
  EXPECT_EQ(o.seq_len, 64);
  EXPECT_EQ(o.lr, 0.5);
  EXPECT_EQ(given(bound.flags), (std::vector<std::string>{"steps", "seq-len", "lr"}));
}

TEST(ConfigFile, MistakesAreInputErrorsThatReportTheFile) {
  const TemporaryFolder folder;
  const auto refused = [&](const std::string& toml, const char* part) {
    const std::string path = folder.write("run.toml", toml).string();
    test::expect_parts(test::input_error_of([&] { train_of({"--config", path.c_str()}); }), {"run.toml", part});
  };
  refused("stpes = 5", "unknown key 'stpes'; did you mean 'steps'?");
  refused("[train]\nwindows = 5", "unknown key 'windows'");
  refused("[trian]\nsteps = 5", "unknown key 'trian'");
  refused("steps = 5.5", "--steps '5.5' is not a whole number");
  for (const char* const list : {"steps = [1, 2]", "steps = [1]", "steps = []", "model = [\"tiny\"]", "tied = [true]"})
    refused(list, "takes one value and is a list; give the value without brackets");
  refused("steps = \"5\"", "steps is the text '5'; give a number, without quotes");
  refused("tied = \"true\"", "tied is the text 'true'; give true or false, without quotes");
  refused("model = true", "model is true or false; give a text, in quotes");
  refused("data = [true]", "data is true or false; give a text, in quotes");
  refused("lr = true", "--lr 'true' is not a number");
  refused("tied = 1", "--tied '1' is neither true nor false");
  refused("lr = inf", "not a finite number");
  refused("lr = {a = 1}", "must be text, a number");
  refused("steps = 2020-01-01", "must be text, a number");
  refused("steps = ", "at line 1");
  refused("sharding = \"zero33\"", "did you mean 'zero3'?");
  refused("dry-run = \"yes\"", "dry-run is the text 'yes'; give true or false");
  const std::string place = folder.write("place.toml", "FOLDER = \"a\"").string();
  EXPECT_INPUT_ERROR(parse_words({"inspect", "--config", place.c_str()}), "unknown key 'FOLDER'; known: quick");
  const std::string absent = folder.path() / "absent.toml";
  EXPECT_INPUT_ERROR(train_of({"--config", absent.c_str()}), absent);
}

TEST(Flags, EachOptimizerAcceptsOnlyItsOwnConstants) {
  const Train sgd = command_of({"--optimizer", "sgd", "--momentum", "0.8", "--nesterov"});
  EXPECT_EQ(resolve(sgd.optimizer), (optim::RunTimeOptimizer{optim::Sgd{.momentum = 0.8, .nesterov = true}}));
  EXPECT_EQ(resolve(command_of({}).optimizer), optim::RunTimeOptimizer());
  EXPECT_INPUT_ERROR(command_of({"--nesterov"}), "--nesterov is not adamw's; it takes --beta1, --beta2");
  EXPECT_INPUT_ERROR(command_of({"--optimizer", "mun"}), "--optimizer mun is not known; did you mean 'muon'?");
  EXPECT_INPUT_ERROR(command_of({"--beta2", "1"}), "--beta2 1 must be at least 0 and below 1");
  const TemporaryFolder folder;
  const std::string path = folder.write("run.toml", "[train]\noptimizer = \"sgd\"\nweight_decay = 0.5\n").string();
  EXPECT_EQ(resolve(command_of({"--config", path.c_str()}).optimizer),
            (optim::RunTimeOptimizer{optim::Sgd{.weight_decay = 0.5}}));
  EXPECT_INPUT_ERROR(command_of({"--config", path.c_str(), "--optimizer", "adamw", "--momentum", "0"}),
                     "--momentum is not adamw's");
}

// Programs with a stack that is fixed at compile time.

const train::FixedStack fixed_stack{
    .sharding = "fsdp2", .precision = "bf16", .tiling = "off", .comm = "threads", .starts_ranks = true};

std::variant<train::Help, Bound<TrainOptions>> parse_program(
    std::vector<const char*> words, bool starts_ranks = true,
    const std::function<void(train::FlagSet&, train::ModelChoice&)>& bind_own = [](auto&, auto&) {}) {
  words.insert(words.begin(), "program");
  train::FixedStack fixed = fixed_stack;
  fixed.starts_ranks = starts_ranks;
  return train::parse_train(static_cast<int>(words.size()), words.data(), fixed, bind_own);
}

TrainOptions program_of(std::vector<const char*> words, bool starts_ranks = true) {
  return *std::get<Bound<TrainOptions>>(parse_program(std::move(words), starts_ranks));
}

TEST(ParseTrain, ReadsFlagsWithoutASubcommand) { EXPECT_EQ(program_of({"--steps", "3"}).steps, 3); }

TEST(ParseTrain, RanksFlagSetsLaunchedRanksOrThoseOfTheDryRun) {
  EXPECT_EQ(program_of({"--ranks", "3"}).launch.ranks, 3);
  EXPECT_EQ(program_of({"--ranks", "3"}).ranks, 0);
  EXPECT_EQ(program_of({"--ranks", "3"}, false).ranks, 3);
  EXPECT_EQ(program_of({"--ranks", "3"}, false).launch.ranks, 1);
}

TEST(ParseTrain, RefusesFlagsOfPoliciesThatAreFixedAtCompileTime) {
  const std::string help = std::get<train::Help>(parse_program({"-h"})).text;
  for (const char* flag : {"--steps", "--ranks", "--deadline", "--threads"})
    EXPECT_NE(help.find(flag), std::string::npos) << flag;
  for (const char* flag : {"--sharding", "--precision", "--precision-of", "--tiling", "--comm", "--layout"})
    EXPECT_EQ(help.find(std::string(flag) + " "), std::string::npos) << flag;
  EXPECT_INPUT_ERROR(parse_program({"--sharding", "zero3"}), "--sharding is fixed by this program: fsdp2");
  EXPECT_INPUT_ERROR(parse_program({"--tiling=off"}), "--tiling is fixed by this program: off");
  EXPECT_INPUT_ERROR(parse_program({"--precision", "bf16"}), "--precision is fixed by this program: bf16");
  EXPECT_INPUT_ERROR(parse_program({"--precision-of", "a=fp32"}), "--precision-of is fixed by this program: bf16");
  EXPECT_INPUT_ERROR(parse_program({"--comm", "mpi"}), "--comm is fixed by this program: threads");
  EXPECT_INPUT_ERROR(parse_program({"--offload", "optimizer"}), "--offload optimizer is fixed by this program: fsdp2");
  EXPECT_INPUT_ERROR(parse_program({"--offload", "input"}), "--offload input is not known; did you mean 'inputs'?");
  EXPECT_EQ(program_of({"--offload", "inputs:25%"}).units.offload_inputs, 0.25);
  EXPECT_EQ(program_of({"--offload", "none"}).units.offload_inputs, 0);
  const TemporaryFolder folder;
  const std::string path = folder.write("run.toml", "sharding = \"zero3\"\n").string();
  EXPECT_INPUT_ERROR(parse_program({"--config", path.c_str()}), "--sharding is fixed by this program: fsdp2");
}

TEST(ParseTrain, OffloadFlagIncludesTheOptimizerIfTheStackOffloadsIt) {
  train::FixedStack fixed = fixed_stack;
  fixed.sharding = policy_text(Offload<FullyShard<>>{});
  fixed.offloads_optimizer = offloads_optimizer_of<Offload<FullyShard<>>>;
  const auto read = [&](std::vector<const char*> words) {
    words.insert(words.begin(), "program");
    return std::get<Bound<TrainOptions>>(
        train::parse_train(static_cast<int>(words.size()), words.data(), fixed, [](auto&, auto&) {}));
  };
  const auto text = [&](std::vector<const char*> words) { return read(std::move(words)).flags.find("offload")->get(); };
  using Texts = std::vector<std::string>;
  EXPECT_EQ(text({}), Texts{"optimizer"});
  EXPECT_EQ(text({"--offload", "optimizer"}), Texts{"optimizer"});
  EXPECT_EQ(text({"--offload", "optimizer,inputs:0.5"}), Texts{"optimizer,inputs:0.5"});
  EXPECT_EQ(text({"--offload", "inputs:0.5"}), Texts{"optimizer,inputs:0.5"});
  EXPECT_EQ(read({"--offload", "optimizer,inputs:0.5"})->units.offload_inputs, 0.5);
  EXPECT_INPUT_ERROR(read({"--offload", "none"}), "--offload none is fixed by this program: fsdp2:offload=optimizer");
  EXPECT_INPUT_ERROR(parse_program({"--offload", "optimizer,inputs:0.5"}),
                     "--offload optimizer is fixed by this program: fsdp2");
}

TEST(ParseTrain, ProgramsWithFloatWeightsTakeTheirNames) {
  train::FixedStack fixed = fixed_stack;
  fixed.precision = policy_text<PrecisionBy<Fp32, Bf16Mixed>>();
  const char* const words[] = {"program", "--precision-of", "*norm*=fp32"};
  const auto parsed = train::parse_train(3, words, fixed, [](auto&, auto&) {});
  EXPECT_EQ(std::get<Bound<TrainOptions>>(parsed)->units.precision, (FloatWeights{{{.names = "*norm*"}}, {true}}));
}

TEST(ParseTrain, RanksPerSequenceDefaultToThoseOfTheProgram) {
  train::FixedStack fixed = fixed_stack;
  fixed.sequence = {.ranks = 2};
  const auto read = [&](std::vector<const char*> words) {
    const auto parsed = train::parse_train(static_cast<int>(words.size()), words.data(), fixed, [](auto&, auto&) {});
    return std::get<Bound<TrainOptions>>(parsed)->sequence;
  };
  EXPECT_EQ(read({"program"}), Ulysses{.ranks = 2});
  EXPECT_EQ(read({"program", "--sequence", "ulysses:4"}), Ulysses{.ranks = 4});
  EXPECT_NO_THROW(train::require_stack_shards({.ranks = 2}, true));
  EXPECT_NO_THROW(train::require_stack_shards({}, false));
  EXPECT_INPUT_ERROR(train::require_stack_shards({.ranks = 2}, false),
                     "--sequence ulysses:2: this program's stack has whole sequences; compile it with fsdp::Ulysses");
}

TEST(ParseTrain, AFixedOptimizerAndTheModelAddTheirOwnFlags) {
  train::ChosenOptimizer<optim::Sgd> chosen{{}};
  const auto parse_own = [&](std::vector<const char*> words) {
    chosen.value = {};
    return parse_program(std::move(words), true, [&](train::FlagSet& flags, train::ModelChoice& model) {
      train::bind_model<LlamaConfig>(flags, model);
      chosen.bind(flags);
    });
  };
  const auto options = std::get<Bound<TrainOptions>>(parse_own({"--layers", "2", "--momentum", "0.5"}));
  EXPECT_EQ(options->model.values, (train::GivenValues{{"layers", "2"}}));
  EXPECT_EQ(given(options.flags), (std::vector<std::string>{"layers", "momentum"}));
  EXPECT_EQ(chosen.resolve(), optim::Sgd{.momentum = 0.5});
  const std::string help = std::get<train::Help>(parse_own({"--help"})).text;
  for (const char* flag : {"--momentum", "--nesterov", "--weight-decay", "--hidden", "--model"})
    EXPECT_NE(help.find(flag), std::string::npos) << flag;
  for (const char* flag : {"--optimizer", "--beta1", "--iterations"})
    EXPECT_EQ(help.find(flag), std::string::npos) << flag;
  EXPECT_INPUT_ERROR(parse_own({"--optimizer", "sgd"}), "--optimizer is fixed by this program: sgd");
}

}  // namespace
}  // namespace fsdp::cli
