// SPDX-License-Identifier: Apache-2.0
#include <cmath>
#include <functional>

#include <gtest/gtest.h>

#include <tessera/comm/launch/cores.hpp>
#include <tessera/trainer/flags/flag_values.hpp>
#include <tessera/trainer/flags/flags.hpp>
#include <tessera/trainer/flags/options.hpp>
#include "support/temporary_folder.hpp"

namespace fsdp::train {
namespace {

TrainOptions with(const std::function<void(TrainOptions&)>& change) {
  TrainOptions options;
  options.data = {"text"};
  change(options);
  return options;
}

/// Binds options to flags and validates them. `given`: names of the flags that a user has set.
void validate(TrainOptions options, std::int64_t ranks, int pieces = 0, const std::vector<std::string>& given = {}) {
  FlagSet flags;
  bind(flags, options);
  for (const std::string& name : given) flags.find(name)->given = true;
  train::validate(flags, options, ranks, pieces);
}

TEST(ValidateTrainOptions, EveryInvalidValueHasAnErrorMessage) {
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

TEST(ThreadsPerRank, DivideTheCoresAmongTheRanks) {
  EXPECT_EQ(comm::threads_per_rank(0, 8, 3), 2);
  EXPECT_EQ(comm::threads_per_rank(0, 2, 4), 1);
  EXPECT_EQ(comm::threads_per_rank(5, 2, 4), 5);
}

TEST(LrAt, ConstantEqualsThePeakExactly) {
  const LrSchedule schedule{.peak = 1e-3, .steps = 20};
  for (std::int64_t step = 0; step < 25; ++step) EXPECT_EQ(lr_at(schedule, step), 1e-3);
}

TEST(LrAt, WarmsUpLinearlyAndReachesThePeak) {
  const LrSchedule schedule{.peak = 2.0, .warmup = 4, .steps = 20};
  EXPECT_EQ(lr_at(schedule, 0), 0.5);
  EXPECT_EQ(lr_at(schedule, 1), 1.0);
  EXPECT_EQ(lr_at(schedule, 3), 2.0);
  EXPECT_EQ(lr_at(schedule, 4), 2.0);
}

TEST(LrAt, CosineFallsToATenthAtTheLastStep) {
  const LrSchedule schedule{.shape = LrShape::cosine, .peak = 1.0, .warmup = 10, .steps = 111};
  EXPECT_EQ(lr_at(schedule, 10), 1.0);
  EXPECT_NEAR(lr_at(schedule, 60), 0.55, 1e-12);
  EXPECT_EQ(lr_at(schedule, 110), 0.1);
  EXPECT_EQ(lr_at(schedule, 500), 0.1);
  for (std::int64_t step = 10; step < 110; ++step) EXPECT_GT(lr_at(schedule, step), lr_at(schedule, step + 1));
}

TEST(LrAt, LinearFallsByTheSameAmountToATenthAtTheLastStep) {
  const LrSchedule schedule{.shape = LrShape::linear, .peak = 1.0, .warmup = 10, .steps = 111};
  EXPECT_EQ(lr_at(schedule, 4), 0.5);
  EXPECT_EQ(lr_at(schedule, 10), 1.0);
  EXPECT_NEAR(lr_at(schedule, 60), 0.55, 1e-12);
  EXPECT_EQ(lr_at(schedule, 110), 0.1);
  EXPECT_EQ(lr_at(schedule, 500), 0.1);
  for (std::int64_t step = 10; step < 110; ++step)
    EXPECT_NEAR(lr_at(schedule, step) - lr_at(schedule, step + 1), 0.009, 1e-12);
}

TEST(LrAt, WsdWarmsUpStaysAtThePeakAndFallsInTheLastSteps) {
  const LrSchedule schedule{.shape = LrShape::wsd, .peak = 1.0, .warmup = 10, .steps = 111, .decay = 30};
  EXPECT_EQ(lr_at(schedule, 4), 0.5);
  for (std::int64_t step = 9; step <= 80; ++step) EXPECT_EQ(lr_at(schedule, step), 1.0);
  for (std::int64_t step = 81; step < 111; ++step)
    EXPECT_NEAR(lr_at(schedule, step), 1.0 - 0.03 * static_cast<double>(step - 80), 1e-12);
  EXPECT_EQ(lr_at(schedule, 110), 0.1);
  EXPECT_EQ(lr_at(schedule, 500), 0.1);
}

TEST(LrAt, WsdDecaysInTheLastTenthByDefault) {
  const LrSchedule schedule{.shape = LrShape::wsd, .peak = 1.0, .steps = 100};
  EXPECT_EQ(lr_at(schedule, 89), 1.0);
  EXPECT_NEAR(lr_at(schedule, 90), 0.91, 1e-12);
  EXPECT_EQ(lr_at(schedule, 99), 0.1);
}

TEST(LrAt, WsdWithoutAStablePhaseIsLinear) {
  const LrSchedule linear{.shape = LrShape::linear, .peak = 0.3, .warmup = 3, .steps = 20};
  LrSchedule wsd = linear;
  wsd.shape = LrShape::wsd;
  wsd.decay = 17;
  for (std::int64_t step = 0; step < 25; ++step) EXPECT_EQ(lr_at(wsd, step), lr_at(linear, step));
}

TEST(LrAt, VeryShortRunsHaveAValidRate) {
  for (const LrShape shape : {LrShape::linear, LrShape::wsd}) {
    EXPECT_EQ(lr_at({.shape = shape, .peak = 1.0, .steps = 1}, 0), 1.0);
    EXPECT_EQ(lr_at({.shape = shape, .peak = 1.0, .warmup = 5, .steps = 5}, 4), 1.0);
    EXPECT_EQ(lr_at({.shape = shape, .peak = 1.0, .warmup = 100, .steps = 5}, 4), 0.05);
    EXPECT_EQ(lr_at({.shape = shape, .peak = 1.0, .warmup = 4, .steps = 5}, 4), 1.0);
    EXPECT_EQ(lr_at({.shape = shape, .peak = 1.0, .steps = 2}, 1), 0.1);
  }
  EXPECT_EQ(lr_at({.shape = LrShape::cosine, .peak = 1.0, .steps = 1}, 0), 1.0);
  EXPECT_EQ(lr_at({.shape = LrShape::cosine, .peak = 1.0, .warmup = 5, .steps = 5}, 4), 1.0);
  EXPECT_EQ(lr_at({.shape = LrShape::cosine, .peak = 1.0, .warmup = 100, .steps = 5}, 4), 0.05);
}

OffloadFlag offload_of(std::string_view text) {
  OffloadFlag value{.optimizer = true, .inputs = 0.75};
  from_text("offload", text, value);
  return value;
}

TEST(OffloadFlag, ReadsTheOptimizerAndAShareOfInputs) {
  EXPECT_EQ(offload_of("none"), OffloadFlag{});
  EXPECT_EQ(offload_of("optimizer"), OffloadFlag{.optimizer = true});
  EXPECT_EQ(offload_of("inputs"), OffloadFlag{.inputs = 1});
  EXPECT_EQ(offload_of("inputs:0.25"), OffloadFlag{.inputs = 0.25});
  EXPECT_EQ(offload_of("inputs:25%"), OffloadFlag{.inputs = 0.25});
  EXPECT_EQ(offload_of("inputs:100%"), OffloadFlag{.inputs = 1});
  for (const char* both : {"optimizer,inputs:0.5", "inputs:0.5,optimizer"})
    EXPECT_EQ(offload_of(both), (OffloadFlag{.optimizer = true, .inputs = 0.5}));
}

TEST(OffloadFlag, RoundTrips) {
  for (const bool optimizer : {false, true})
    for (const double inputs : {0.0, 0.1 + 0.2, 1.0}) {
      const OffloadFlag value{.optimizer = optimizer, .inputs = inputs};
      EXPECT_EQ(offload_of(to_text(value)), value);
    }
  EXPECT_EQ(to_text(OffloadFlag{}), "none");
  EXPECT_EQ(to_text(OffloadFlag{.optimizer = true}), "optimizer");
  EXPECT_EQ(to_text(OffloadFlag{.inputs = 0.25}), "inputs:0.25");
  EXPECT_EQ(to_text(OffloadFlag{.optimizer = true, .inputs = 1}), "optimizer,inputs");
}

TEST(OffloadFlag, RefusesInvalidText) {
  for (const char* bad : {"inputs:0", "inputs:1.01", "inputs:-1", "inputs:", "inputs:x", "inputs:nan", "inputs:101%"})
    EXPECT_INPUT_ERROR(offload_of(bad), "the share of blocks must be above 0 and at most 1");
  EXPECT_INPUT_ERROR(offload_of("input"), "did you mean 'inputs'?");
  EXPECT_INPUT_ERROR(offload_of("optimizer,input"),
                     "--offload optimizer,input is not known; did you mean 'optimizer,inputs'?");
  EXPECT_INPUT_ERROR(offload_of("optimizer,"), "--offload optimizer, is not known; did you mean 'optimizer'?");
  EXPECT_INPUT_ERROR(offload_of("none,inputs"), "--offload none,inputs: none stands alone; leave it or the rest out");
  EXPECT_INPUT_ERROR(offload_of("optimizer,none"), "--offload optimizer,none: none stands alone");
  EXPECT_INPUT_ERROR(offload_of("inputs,inputs:0.5"), "names the same twice");
}

}  // namespace
}  // namespace fsdp::train
