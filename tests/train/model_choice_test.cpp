// SPDX-License-Identifier: Apache-2.0
#include <tessera/trainer/flags/model_choice.hpp>

#include <string>
#include <vector>

#include <gtest/gtest.h>

#include <tessera/fsdp/models/llama_config.hpp>

#include "support/temporary_folder.hpp"

namespace fsdp::train {
namespace {

/// A config that is nobody's of ours: no presets, no positions.
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

TEST(FlagName, IsTheValuesWithDashesAndWithoutSize) {
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

TEST(ResolveModel, ReadsAFolderWhichTakesNoOverrides) {
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

TEST(ResolveModel, EveryValueOfAForeignConfigIsAFlag) {
  ModelChoice choice;
  FlagSet flags;
  bind_model<Widths>(flags, choice);
  EXPECT_EQ(flags.names(), (std::vector<std::string>{"model", "layers", "state", "keep", "gated"}));
  EXPECT_EQ(flags.find("gated")->kind, FlagKind::boolean);
  EXPECT_NE(flags.find("keep")->help.find("share that stays (0.5)"), std::string::npos);
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

TEST(FlagSet, ANameThatIsThereTwiceIsAnError) {
  FlagSet flags;
  bool field = false;
  flags.add("layers", field, "of something else");
  ModelChoice choice;
  EXPECT_THROW(bind_model<Widths>(flags, choice), Error);
}

}  // namespace
}  // namespace fsdp::train
