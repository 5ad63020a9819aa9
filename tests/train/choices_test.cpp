// SPDX-License-Identifier: Apache-2.0
#include <string>
#include <vector>

#include <gtest/gtest.h>

#include <tessera/fsdp/models/llama_config.hpp>
#include <tessera/trainer/flags/model_choice.hpp>
#include <tessera/trainer/flags/optimizer_choice.hpp>
#include "support/temporary_folder.hpp"

namespace fsdp::train {
namespace {

/// A user-defined config without presets and positions.
struct Widths {
  std::int64_t layers = 2;
  std::int64_t state_size = 8;
  double keep = 0.5;
  bool gated = false;

  static Widths read(const std::filesystem::path&) { return {.layers = 7}; }
  void validate() const { require<InputError>(layers > 0, "widths: no layers"); }
  template <class Self, class Visitor>
  static void visit(Self& self, Visitor&& visitor) {
    visitor("layers", self.layers, "blocks");
    visitor("state_size", self.state_size, "of a block");
    visitor("keep", self.keep, "share that stays");
    visitor("gated", self.gated, "with a gate");
  }
};

static_assert(HasPresets<LlamaConfig> && HasLongestSequence<LlamaConfig>);
static_assert(!HasPresets<Widths> && !HasLongestSequence<Widths>);

void set(FlagSet& flags, const std::string& name, const std::string& text) { flags.find(name)->set({text}); }

TEST(FlagName, UsesDashesAndDropsTheSizeSuffix) {
  EXPECT_EQ(flag_name("hidden_size"), "hidden");
  EXPECT_EQ(flag_name("rms_norm_eps"), "rms-norm-eps");
  EXPECT_EQ(flag_name("layers"), "layers");
  EXPECT_EQ(flag_name("_size"), "-size");
}

TEST(ResolveModel, TakesAPresetAndItsOverrides) {
  ModelChoice choice;
  EXPECT_EQ(resolve_model<LlamaConfig>(choice), llama_preset("small"));
  choice.name = "tiny";
  EXPECT_EQ(resolve_model<LlamaConfig>(choice), llama_preset("tiny"));
  EXPECT_FALSE(is_folder<LlamaConfig>(choice));
  choice.values = {{"hidden", "64"}, {"heads", "4"}, {"layers", "1"}, {"tied", "true"}};
  const LlamaConfig config = resolve_model<LlamaConfig>(choice);
  EXPECT_EQ(config.head_dim, 16);
  EXPECT_EQ(config.layers, 1);
  EXPECT_TRUE(config.tied);
  choice.values["head-dim"] = "7";
  EXPECT_INPUT_ERROR(resolve_model<LlamaConfig>(choice), "must be even");
  choice.values.erase("head-dim");
  choice.values["kv-heads"] = "3";
  EXPECT_INPUT_ERROR(resolve_model<LlamaConfig>(choice), "4 heads are not divisible by 3 key-value heads");
  choice.values["heads"] = "0";
  EXPECT_INPUT_ERROR(resolve_model<LlamaConfig>(choice), "number of heads is 0");
}

TEST(ResolveModel, ReadsAFolderAndRefusesOverrides) {
  ModelChoice choice;
  choice.name = test::golden("llama-odd").string();
  EXPECT_TRUE(is_folder<LlamaConfig>(choice));
  EXPECT_EQ(resolve_model<LlamaConfig>(choice).hidden_size, 21);
  choice.values = {{"layers", "2"}, {"hidden", "8"}};
  EXPECT_INPUT_ERROR(resolve_model<LlamaConfig>(choice), "gives all sizes; drop --hidden, --layers");
  choice = {.name = "smol"};
  EXPECT_INPUT_ERROR(resolve_model<LlamaConfig>(choice),
                     "--model smol is neither a preset nor a folder; did you mean 'small'?");
}

TEST(ResolveModel, EveryValueOfAUserDefinedConfigIsAFlag) {
  ModelChoice choice;
  FlagSet flags;
  bind_model<Widths>(flags, choice);
  EXPECT_EQ(flags.names(), (std::vector<std::string>{"model", "layers", "state", "keep", "gated"}));
  EXPECT_EQ(flags.find("gated")->kind, FlagKind::boolean);
  test::expect_parts(flags.find("keep")->help, {"share that stays (0.5)"});
  EXPECT_EQ(model_name<Widths>(choice), "");
  EXPECT_FALSE(is_folder<Widths>(choice));

  set(flags, "state", "16");
  set(flags, "keep", "0.25");
  set(flags, "gated", "true");
  const Widths widths = resolve_model<Widths>(choice);
  EXPECT_EQ(widths.layers, 2);
  EXPECT_EQ(widths.state_size, 16);
  EXPECT_EQ(widths.keep, 0.25);
  EXPECT_TRUE(widths.gated);
  EXPECT_INPUT_ERROR(set(flags, "layers", "1.5"), "--layers '1.5' is not a whole number");
  set(flags, "layers", "0");
  EXPECT_INPUT_ERROR(resolve_model<Widths>(choice), "widths: no layers");

  choice = {.name = "folder"};
  EXPECT_EQ(resolve_model<Widths>(choice).layers, 7);
}

TEST(FlagSet, ADuplicateNameIsAnError) {
  FlagSet flags;
  bool field = false;
  flags.add("layers", field, "of something else");
  ModelChoice choice;
  EXPECT_THROW(bind_model<Widths>(flags, choice), Error);
}

using optim::AdamW;
using optim::Muon;
using optim::RunTimeOptimizer;
using optim::Sgd;

TEST(OptimizerChoice, IsTheDefaultOfTheProgramUnlessSpecified) {
  EXPECT_EQ(resolve({}), RunTimeOptimizer());
  EXPECT_EQ(resolve({.name = "sgd"}), RunTimeOptimizer{Sgd{}});
  const RunTimeOptimizer start{Sgd{.momentum = 0.5, .nesterov = true}};
  EXPECT_EQ(resolve({.start = start}), start);
  EXPECT_EQ(resolve({.name = "sgd", .start = start}), start);
  EXPECT_EQ(resolve({.name = "adamw", .start = start}), RunTimeOptimizer());
}

TEST(OptimizerChoice, PassesEveryConstantToTheOptimizerThatHasIt) {
  EXPECT_EQ(resolve({.constants = {{"beta1", "0.8"}, {"beta2", "0.99"}, {"eps", "1e-12"}, {"weight-decay", "0.05"}}}),
            (RunTimeOptimizer{AdamW{.beta1 = 0.8, .beta2 = 0.99, .eps = 1e-12, .weight_decay = 0.05}}));
  EXPECT_EQ(resolve({.name = "sgd", .constants = {{"momentum", "0.8"}, {"nesterov", "true"}}}),
            (RunTimeOptimizer{Sgd{.momentum = 0.8, .nesterov = true}}));
  EXPECT_EQ(resolve({.name = "muon", .constants = {{"iterations", "3"}, {"weight-decay", "0"}}}),
            (RunTimeOptimizer{Muon{.iterations = 3, .adamw = {.weight_decay = 0}}}));
}

TEST(OptimizerChoice, RefusesConstantsThatTheOptimizerDoesNotHave) {
  EXPECT_INPUT_ERROR(resolve({.constants = {{"nesterov", "true"}}}),
                     "--nesterov is not adamw's; it takes --beta1, --beta2, --eps, --weight-decay");
  EXPECT_INPUT_ERROR(resolve({.name = "sgd", .constants = {{"beta1", "0.8"}}}),
                     "--beta1 is not sgd's; it takes --momentum, --nesterov, --weight-decay");
  EXPECT_INPUT_ERROR(resolve({.name = "adam"}), "--optimizer adam is not known; did you mean 'adamw'?");
}

TEST(OptimizerChoice, EveryInvalidConstantHasAnErrorMessage) {
  EXPECT_INPUT_ERROR(resolve({.constants = {{"beta2", "1"}}}), "--beta2 1 must be at least 0 and below 1");
  EXPECT_INPUT_ERROR(resolve({.constants = {{"beta2", "0.99999999"}}}),
                     "--beta2 0.99999999 must be at least 0 and below 1 as a float");
  EXPECT_INPUT_ERROR(resolve({.name = "sgd", .constants = {{"momentum", "0.99999999"}}}), "--momentum 0.99999999 must");
  EXPECT_INPUT_ERROR(resolve({.name = "sgd", .constants = {{"weight-decay", "1e39"}}}), "--weight-decay 1e+39 must");
  EXPECT_INPUT_ERROR(resolve({.constants = {{"eps", "0"}}}), "--eps 0 must be above 0");
  EXPECT_INPUT_ERROR(resolve({.constants = {{"weight-decay", "-1"}}}), "--weight-decay -1 must be at least 0");
  EXPECT_INPUT_ERROR(resolve({.name = "sgd", .constants = {{"momentum", "1"}}}), "--momentum 1 must be");
  EXPECT_INPUT_ERROR(resolve({.name = "sgd", .constants = {{"momentum", "0"}, {"nesterov", "true"}}}),
                     "--nesterov looks ahead along the momentum, and --momentum is 0");
  EXPECT_INPUT_ERROR(resolve({.name = "muon", .constants = {{"iterations", "0"}}}), "--iterations 0 must be 1 to 100");
}

TEST(OptimizerFlags, AreTheConstantsOfAllOptimizersWithTheirDefaults) {
  OptimizerChoice choice;
  FlagSet flags;
  bind(flags, choice);
  EXPECT_EQ(flags.names(), (std::vector<std::string>{"optimizer", "beta1", "beta2", "eps", "weight-decay", "moments",
                                                     "momentum", "nesterov", "iterations", "per-head"}));
  EXPECT_EQ(flags.find("optimizer")->get(), std::vector<std::string>{"adamw"});
  EXPECT_EQ(flags.find("beta1")->help, "adamw (0.9), muon (0.9): decay of the mean of gradients");
  const std::string& help = flags.find("weight-decay")->help;
  test::expect_parts(help, {"adamw (0.1), muon (0.1): ", "; sgd (0): "});
  EXPECT_TRUE(flags.find("beta1")->get().empty());
  flags.find("beta1")->set({"0.50"});
  EXPECT_EQ(choice.constants, (GivenValues{{"beta1", "0.5"}}));
  EXPECT_INPUT_ERROR(flags.find("iterations")->set({"many"}), "--iterations 'many' is not a whole number");
}

TEST(OptimizerFlags, OfAFixedOptimizerAreOnlyItsConstants) {
  ChosenOptimizer<Sgd> chosen{Sgd{.momentum = 0.7}};
  FlagSet flags;
  chosen.bind(flags);
  EXPECT_EQ(flags.names(), (std::vector<std::string>{"momentum", "nesterov", "weight-decay"}));
  EXPECT_EQ(flags.find("momentum")->get(), std::vector<std::string>{"0.7"});
  EXPECT_EQ(flags.refusal("optimizer"), "--optimizer is fixed by this program: sgd");
  EXPECT_EQ(flags.refusal("momentum"), "");
  flags.find("nesterov")->set({"true"});
  EXPECT_EQ(chosen.resolve(), (Sgd{.momentum = 0.7, .nesterov = true}));
  flags.find("momentum")->set({"2"});
  EXPECT_INPUT_ERROR(chosen.resolve(), "--momentum 2 must be at least 0 and below 1");
}

TEST(OptimizerLines, ListTheOptimizerAndAllConstants) {
  EXPECT_EQ(optimizer_lines(RunTimeOptimizer{Sgd{}}),
            "optimizer = \"sgd\"\nmomentum = 0.9\nnesterov = false\nweight-decay = 0\n");
}

}  // namespace
}  // namespace fsdp::train
