// SPDX-License-Identifier: Apache-2.0
#include <fsdp/train/options.hpp>

#include <gtest/gtest.h>

#include <cmath>
#include <functional>

#include "support/temporary_folder.hpp"

namespace fsdp::train {
namespace {

TrainOptions with(const std::function<void(TrainOptions&)>& change) {
  TrainOptions options;
  options.data = {"text"};
  change(options);
  return options;
}

TEST(ValidateTrainOptions, EveryBadValueHasItsSentence) {
  EXPECT_NO_THROW(validate(with([](TrainOptions&) {}), 2));
  EXPECT_INPUT_ERROR(validate(with([](TrainOptions& o) { o.data.clear(); }), 1), "--data is missing");
  EXPECT_INPUT_ERROR(validate(with([](TrainOptions& o) { o.steps = 0; }), 1), "--steps 0 must be at least 1");
  EXPECT_INPUT_ERROR(validate(with([](TrainOptions& o) { o.seq_len = -1; }), 1), "--seq-len -1");
  EXPECT_INPUT_ERROR(validate(with([](TrainOptions& o) { o.grad_accum = 0; }), 1), "--grad-accum 0");
  EXPECT_INPUT_ERROR(validate(with([](TrainOptions& o) { o.lr = -1; }), 1), "--lr -1");
  EXPECT_INPUT_ERROR(validate(with([](TrainOptions& o) { o.lr = NAN; }), 1), "--lr nan");
  EXPECT_INPUT_ERROR(validate(with([](TrainOptions& o) { o.beta2 = 1; }), 1), "--beta2 1");
  EXPECT_INPUT_ERROR(validate(with([](TrainOptions& o) { o.eps = 0; }), 1), "--eps 0");
  EXPECT_INPUT_ERROR(validate(with([](TrainOptions& o) { o.clip = -1; }), 1), "--clip -1");
  EXPECT_INPUT_ERROR(validate(with([](TrainOptions& o) { o.validation_fraction = 1; }), 1), "--validation-fraction 1");
  EXPECT_INPUT_ERROR(validate(with([](TrainOptions& o) { o.launch.threads = -1; }), 1), "--threads -1");
  EXPECT_INPUT_ERROR(validate(with([](TrainOptions& o) { o.ranks = 4; }), 1), "--dry-run only");
  EXPECT_INPUT_ERROR(validate(with([](TrainOptions&) {}), 3), "the nearest sizes that can: 6 and 9");
}

TEST(ResolveModel, TakesAPresetAndItsOverrides) {
  ModelChoice choice;
  choice.name = "tiny";
  EXPECT_EQ(resolve_model(choice), llama_preset("tiny"));
  EXPECT_FALSE(is_folder(choice));
  choice.hidden = 64;
  choice.heads = 4;
  choice.layers = 1;
  choice.tied = true;
  const LlamaConfig config = resolve_model(choice);
  EXPECT_EQ(config.head_dim, 16);
  EXPECT_EQ(config.layers, 1);
  EXPECT_TRUE(config.tied);
  choice.head_dim = 7;
  EXPECT_INPUT_ERROR(resolve_model(choice), "must be even");
  choice.head_dim.reset();
  choice.kv_heads = 3;
  EXPECT_INPUT_ERROR(resolve_model(choice), "4 heads are not divisible by 3 key-value heads");
  choice.heads = 0;
  EXPECT_INPUT_ERROR(resolve_model(choice), "number of heads is 0");
}

TEST(ResolveModel, ReadsAFolderWhichTakesNoOverrides) {
  ModelChoice choice;
  choice.name = test::golden("llama-odd").string();
  EXPECT_TRUE(is_folder(choice));
  EXPECT_EQ(resolve_model(choice).hidden_size, 21);
  choice.layers = 2;
  EXPECT_INPUT_ERROR(resolve_model(choice), "gives all sizes");
  choice = ModelChoice();
  choice.name = "smol";
  EXPECT_INPUT_ERROR(resolve_model(choice), "--model smol is neither a preset nor a folder; did you mean 'small'?");
}

TEST(ScheduleOf, CopiesTheOptions) {
  const TrainOptions options = with([](TrainOptions& o) { o.lr = 0.5, o.steps = 9, o.warmup = 2; });
  EXPECT_EQ(schedule_of(options), (LrSchedule{.shape = LrShape::cosine, .peak = 0.5, .warmup = 2, .steps = 9}));
}

TEST(ThreadsPerRank, AreTheCoresSharedByTheRanks) {
  EXPECT_EQ(threads_per_rank(0, 8, 3), 2);
  EXPECT_EQ(threads_per_rank(0, 2, 4), 1);
  EXPECT_EQ(threads_per_rank(5, 2, 4), 5);
}

}  // namespace
}  // namespace fsdp::train
