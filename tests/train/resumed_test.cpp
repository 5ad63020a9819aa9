// SPDX-License-Identifier: Apache-2.0
#include <tessera/trainer/run/resumed.hpp>

#include <string>
#include <vector>

#include <gtest/gtest.h>

#include "support/temporary_folder.hpp"

namespace fsdp::train {
namespace {

const TrainOptions options = {.data = {"text"}, .steps = 10, .seq_len = 16, .batch_size = 4};

checkpoint::TrainerState saved() {
  checkpoint::TrainerState state{
      .step = 5, .epoch = 1, .index = 7, .seed = 0, .windows = 20, .seq_len = 16, .run = record_of(options)};
  state.run["data"] = "1 files";
  return state;
}

RunRecord record_now(const TrainOptions& now) {
  RunRecord record = record_of(now);
  record["data"] = "1 files";
  return record;
}

/// The lines after the first of a run that goes on with these options.
std::vector<std::string> lines(const TrainOptions& now, std::int64_t windows = 20) {
  std::vector<std::string> said = compare_with("c", saved(), record_now(now), now, windows).lines;
  said.erase(said.begin());
  return said;
}

TEST(Resumed, TheSameFlagsSayFromWhereAlone) {
  const Resumed same = compare_with("c", saved(), record_now(options), options, 20);
  EXPECT_EQ(same.lines, (std::vector<std::string>{"resumed from c: step 5, epoch 1, window 7 of 20"}));
  EXPECT_EQ(same.position, (data::Position{.epoch = 1, .index = 7}));
}

TEST(Resumed, OtherConstantsAreSaidAndPathsAreNot) {
  TrainOptions now = options;
  now.lr = 0.5;
  now.steps = 12;
  now.checkpoint_dir = now.tensorboard = "elsewhere";
  EXPECT_EQ(lines(now),
            (std::vector<std::string>{"resumed: --lr was 0.001, is 0.5", "resumed: --steps was 10, is 12"}));
}

TEST(Resumed, WhatIsNoFlagIsNamedInWords) {
  checkpoint::TrainerState then = saved();
  RunRecord now = record_of(options);
  then.run["ranks"] = "2";
  now["ranks"] = "4";
  then.run["adapter"] = "";
  now["adapter"] = "there\n";
  const std::vector<std::string> all = compare_with("c", then, now, options, 20).lines;
  EXPECT_EQ((std::vector<std::string>{all.begin() + 1, all.end()}),
            (std::vector<std::string>{"resumed: --adapter was not given, is there\\n",
                                      "resumed: the number of ranks was 2, is 4"}));
}

TEST(Resumed, AnotherScheduleIsSaid) {
  TrainOptions now = options;
  now.lr_schedule = LrShape::wsd;
  now.lr_decay_steps = 4;
  EXPECT_EQ(lines(now), (std::vector<std::string>{"resumed: --lr-decay-steps was 0, is 4",
                                                  "resumed: --lr-schedule was cosine, is wsd"}));
}

TEST(Resumed, AnotherOrderOfDataIsRefusedUnlessAnyway) {
  TrainOptions now = options;
  now.batch_size = 8;
  EXPECT_INPUT_ERROR(lines(now), "--batch-size was 4, is 8; resume with what it was, or --resume-anyway");
  now.resume_anyway = true;
  EXPECT_EQ(lines(now).size(), 1u);
  EXPECT_EQ(compare_with("c", saved(), record_now(now), now, 20).position, (data::Position{.epoch = 2, .index = 0}));

  now = options;
  now.seed = 1;
  EXPECT_INPUT_ERROR(lines(now), "the run's seed was 0; resume with --seed 0, or --resume-anyway");
  EXPECT_INPUT_ERROR(lines(options, 21), "was trained on 20 windows of 16 tokens, these data and flags give 21 of 16");
  RunRecord other = record_now(options);
  other["data"] = "2 files";
  EXPECT_INPUT_ERROR(compare_with("c", saved(), other, options, 20), "the data was 1 files, is 2 files");
}

TEST(Resumed, ACheckpointWithoutARecordIsTaken) {
  checkpoint::TrainerState old = saved();
  old.run.clear();
  const Resumed resumed = compare_with("c", old, record_now(options), options, 20);
  ASSERT_EQ(resumed.lines.size(), 2u);
  EXPECT_EQ(resumed.lines[1], "resumed: it does not say with which flags it was trained");
}

TEST(Resumed, AStepBeyondTheRunIsRefused) {
  TrainOptions now = options;
  now.steps = 4;
  EXPECT_INPUT_ERROR(lines(now), "is at step 5 already");
}

}  // namespace
}  // namespace fsdp::train
