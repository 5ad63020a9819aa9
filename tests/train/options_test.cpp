// SPDX-License-Identifier: Apache-2.0
#include <tessera/trainer/flags/options.hpp>

#include <gtest/gtest.h>

#include <cmath>
#include <functional>

#include <tessera/trainer/flags/flags.hpp>

#include "support/temporary_folder.hpp"

namespace fsdp::train {
namespace {

TrainOptions with(const std::function<void(TrainOptions&)>& change) {
  TrainOptions options;
  options.data = {"text"};
  change(options);
  return options;
}

/// Validates options with flags of their own. `given`: names of those that a user set.
void validate(TrainOptions options, std::int64_t ranks, int pieces = 0, const std::vector<std::string>& given = {}) {
  FlagSet flags;
  bind(flags, options);
  for (const std::string& name : given) flags.find(name)->given = true;
  train::validate(flags, options, ranks, pieces);
}

TEST(ValidateTrainOptions, EveryBadValueHasItsSentence) {
  EXPECT_NO_THROW(validate(with([](TrainOptions&) {}), 2));
  EXPECT_INPUT_ERROR(validate(with([](TrainOptions& o) { o.data.clear(); }), 1), "--data is missing");
  EXPECT_INPUT_ERROR(validate(with([](TrainOptions& o) { o.steps = 0; }), 1), "--steps 0 must be at least 1");
  EXPECT_INPUT_ERROR(validate(with([](TrainOptions& o) { o.seq_len = -1; }), 1), "--seq-len -1");
  EXPECT_INPUT_ERROR(validate(with([](TrainOptions& o) { o.grad_accum = 0; }), 1), "--grad-accum 0");
  EXPECT_INPUT_ERROR(validate(with([](TrainOptions& o) { o.lr = -1; }), 1), "--lr -1");
  EXPECT_INPUT_ERROR(validate(with([](TrainOptions& o) { o.lr = NAN; }), 1), "--lr nan");
  EXPECT_INPUT_ERROR(validate(with([](TrainOptions& o) { o.clip = -1; }), 1), "--clip -1");
  EXPECT_INPUT_ERROR(validate(with([](TrainOptions& o) { o.validation_fraction = 1; }), 1), "--validation-fraction 1");
  EXPECT_INPUT_ERROR(validate(with([](TrainOptions& o) { o.launch.threads = -1; }), 1), "--threads -1");
  EXPECT_INPUT_ERROR(validate(with([](TrainOptions& o) { o.ranks = 4; }), 1), "--dry-run only");
  EXPECT_INPUT_ERROR(validate(with([](TrainOptions& o) { o.lr = 1e39; }), 1), "at least 0 and at most 1000");
  EXPECT_INPUT_ERROR(validate(with([](TrainOptions& o) { o.grad_accum = std::int64_t{1} << 32; }), 1),
                     "--grad-accum 4294967296 must be at least 1 and at most 1048576");
  EXPECT_INPUT_ERROR(validate(with([](TrainOptions& o) { o.launch.deadline_seconds = 1e16; }), 1),
                     "--deadline 1e+16 must be above 0 and at most");
  EXPECT_INPUT_ERROR(validate(with([](TrainOptions& o) { o.batch_size = 1 << 20, o.seq_len = 1 << 12; }), 1),
                     "has more than 2147483647 tokens");
  EXPECT_INPUT_ERROR(validate(with([](TrainOptions& o) { o.lr_decay_steps = 3; }), 1),
                     "--lr-decay-steps needs --lr-schedule wsd; found cosine. Take that schedule, or leave it out");
  EXPECT_INPUT_ERROR(validate(with([](TrainOptions& o) {
                                o.lr_schedule = LrShape::wsd, o.steps = 9, o.warmup = 4, o.lr_decay_steps = 6;
                              }),
                              1),
                     "--warmup 4 and --lr-decay-steps 6 are more than --steps 9");
  EXPECT_NO_THROW(validate(
      with([](TrainOptions& o) { o.lr_schedule = LrShape::wsd, o.steps = 9, o.warmup = 4, o.lr_decay_steps = 5; }), 1));
  EXPECT_INPUT_ERROR(validate(with([](TrainOptions& o) { o.sample_prompt = "x", o.sample_tokens = o.seq_len; }), 1),
                     "--sample-tokens 512 leave no room for a prompt in --seq-len 512");
  EXPECT_INPUT_ERROR(validate(with([](TrainOptions&) {}), 1, 0, {"sample-tokens"}), "give --sample-prompt too");
  EXPECT_INPUT_ERROR(validate(with([](TrainOptions& o) { o.metrics = ""; }), 1), "--metrics '' is empty");
  EXPECT_INPUT_ERROR(validate(with([](TrainOptions& o) { o.memory = ""; }), 1), "--memory '' is empty");
  EXPECT_INPUT_ERROR(validate(with([](TrainOptions& o) { o.data = {"text", ""}; }), 1), "--data '' is empty");
  EXPECT_INPUT_ERROR(validate(with([](TrainOptions& o) { o.checkpoint_every = 1; }), 1), "give --checkpoint-dir too");
  EXPECT_INPUT_ERROR(validate(with([](TrainOptions& o) { o.resume_anyway = true; }), 1), "give --resume too");
  EXPECT_INPUT_ERROR(validate(with([](TrainOptions&) {}), 3), "the nearest sizes that can: 6 and 9");
}

TEST(ScheduleOf, CopiesTheOptions) {
  const TrainOptions options = with([](TrainOptions& o) { o.lr = 0.5, o.steps = 9, o.warmup = 2; });
  EXPECT_EQ(schedule_of(options), (LrSchedule{.shape = LrShape::cosine, .peak = 0.5, .warmup = 2, .steps = 9}));
  const TrainOptions wsd = with([](TrainOptions& o) { o.lr_schedule = LrShape::wsd, o.lr_decay_steps = 3; });
  EXPECT_EQ(schedule_of(wsd).shape, LrShape::wsd);
  EXPECT_EQ(schedule_of(wsd).decay, 3);
}

TEST(ThreadsPerRank, AreTheCoresSharedByTheRanks) {
  EXPECT_EQ(comm::threads_per_rank(0, 8, 3), 2);
  EXPECT_EQ(comm::threads_per_rank(0, 2, 4), 1);
  EXPECT_EQ(comm::threads_per_rank(5, 2, 4), 5);
}

}  // namespace
}  // namespace fsdp::train
