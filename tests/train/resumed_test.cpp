// SPDX-License-Identifier: Apache-2.0
#include <tessera/trainer/run/resumed.hpp>

#include <set>
#include <string>
#include <vector>

#include <gtest/gtest.h>

#include <tessera/trainer/flags/flags.hpp>

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

/// The lines after the first one of a run that resumes with these options.
std::vector<std::string> lines(const TrainOptions& now, std::int64_t windows = 20) {
  std::vector<std::string> said = compare_with("c", saved(), record_now(now), now, windows).lines;
  said.erase(said.begin());
  return said;
}

TEST(Resumed, WithTheSameFlagsOnlyReportsThePosition) {
  const Resumed same = compare_with("c", saved(), record_now(options), options, 20);
  EXPECT_EQ(same.lines, (std::vector<std::string>{"resumed from c: step 5, epoch 1, window 7 of 20"}));
  EXPECT_EQ(same.position, (data::Position{.epoch = 1, .index = 7}));
}

TEST(Resumed, ReportsChangedValuesButNotChangedPaths) {
  TrainOptions now = options;
  now.lr = 0.5;
  now.steps = 12;
  now.checkpoint_dir = now.tensorboard = "elsewhere";
  EXPECT_EQ(lines(now),
            (std::vector<std::string>{"resumed: --lr was 0.001, is 0.5", "resumed: --steps was 10, is 12"}));
}

TEST(Resumed, OtherRanksMayShareSequences) {
  TrainOptions now = options;
  now.sequence = {.ranks = 2};
  const std::vector<std::string> said = {"resumed: --sequence was whole, is ulysses:2"};
  EXPECT_EQ(lines(now), said);
  checkpoint::TrainerState older = saved();
  older.run.erase("sequence");
  EXPECT_EQ(compare_with("c", older, record_now(now), now, 20).lines.back(), said.back()) << "all had whole ones";
  EXPECT_EQ(compare_with("c", older, record_now(options), options, 20).lines.size(), 1u);
}

TEST(Resumed, ChangesThatAreNotFlagsAreDescribedInWords) {
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

TEST(RecordOf, ContainsExactlyTheFlagsThatAffectResults) {
  std::string names;
  for (const auto& [name, value] : record_of(options)) names += name + " ";
  EXPECT_EQ(names,
            "batch-size blocks-per-unit clip data-format document-separator freeze from-scratch grad-accum group "
            "keep-last-block learn loss-scale lr lr-decay-steps lr-schedule merge-units-below on-long precision-of "
            "recompute replicate seed "
            "seq-len sequence steps validation-fraction warmup ");
}

// A new flag must declare how results depend on it, or be listed here.
TEST(RecordOf, OmitsExactlyTheseFlags) {
  TrainOptions bound;
  FlagSet flags;
  bind(flags, bound);
  std::set<std::string> names;
  for (const Flag& flag : flags.flags())
    if (flag.effect == Effect::none) names.insert(flag.name);
  EXPECT_EQ(names, (std::set<std::string>{"chat-template",
                                          "checkpoint-dir",
                                          "checkpoint-every",
                                          "cluster",
                                          "cuda-graphs",
                                          "data",
                                          "deadline",
                                          "device-deadline",
                                          "digests",
                                          "disk-deadline",
                                          "dry-run",
                                          "end-token",
                                          "keep",
                                          "log-every",
                                          "memory",
                                          "metrics",
                                          "on-signal",
                                          "patience",
                                          "print-schedule",
                                          "reductions",
                                          "resume",
                                          "resume-anyway",
                                          "sample-prompt",
                                          "sample-tokens",
                                          "shared-windows",
                                          "start-deadline",
                                          "tensorboard",
                                          "text-field",
                                          "threads",
                                          "token-cache",
                                          "tokenizer",
                                          "trace",
                                          "until",
                                          "validation-every",
                                          "validation-windows",
                                          "verify-every"}));
}

TEST(Resumed, ReportsChangedParameterGroups) {
  TrainOptions before = options, now = options;
  before.units.groups = {{.parameters = "*.bias", .weight_decay = 0},
                         {.role = Role::table, .lr = 0.5, .clip = 1},
                         {.parameters = "a", .frozen = true}};
  now.units.groups = {{.role = Role::table, .lr = 0.25, .clip = 1},
                      {.parameters = "*.bias", .weight_decay = 0},
                      {.parameters = "b", .lr = 2}};
  checkpoint::TrainerState then = saved();
  const auto lines_after = [&](const TrainOptions& options_now) {
    const std::vector<std::string> all = compare_with("c", then, record_now(options_now), options_now, 20).lines;
    return std::vector<std::string>(all.begin() + 1, all.end());
  };
  then.run = record_now(before);
  EXPECT_EQ(lines_after(before), std::vector<std::string>());
  EXPECT_EQ(lines_after(now),
            (std::vector<std::string>{"resumed: --group '* role=table' was lr=0.5 clip=1, is lr=0.25 clip=1",
                                      "resumed: --group 'a' was frozen, is not given",
                                      "resumed: --group 'b' was not given, is lr=2"}));
  then.run = record_now(options);
  then.run.erase("group");  // a record of an earlier version
  EXPECT_EQ(lines_after(options), std::vector<std::string>());
  EXPECT_EQ(lines_after(now).size(), 3u);
}

TEST(Resumed, ReportsAChangedLearningRateSchedule) {
  TrainOptions now = options;
  now.lr_schedule = LrShape::wsd;
  now.lr_decay_steps = 4;
  EXPECT_EQ(lines(now), (std::vector<std::string>{"resumed: --lr-decay-steps was 0, is 4",
                                                  "resumed: --lr-schedule was cosine, is wsd"}));
}

TEST(Resumed, WarnsIfChangedFlagsRaiseTheLearningRate) {
  checkpoint::TrainerState done = saved();
  done.step = 10;
  const auto resumed = [&](const checkpoint::TrainerState& then, const TrainOptions& now) {
    return compare_with("c", then, record_now(now), now, 20);
  };
  TrainOptions longer = options;
  longer.steps = 20;
  EXPECT_EQ(resumed(done, longer).warning,
            "the learning rate of step 11 is 5.13e-04, after 1.00e-04 at step 10: --steps was 10, is 20");
  EXPECT_EQ(resumed(done, longer).lines.back(), "resumed: --steps was 10, is 20");
  TrainOptions lower = options;
  lower.lr = 1e-4;
  EXPECT_EQ(resumed(saved(), lower).lines.back(),
            "resumed: the learning rate of step 6 is 4.72e-05, after 6.28e-04 at step 5: --lr was 0.001, is 1e-04");
  EXPECT_EQ(resumed(saved(), lower).warning, "");
  EXPECT_EQ(resumed(saved(), options).lines.size(), 1u);
  EXPECT_EQ(resumed(done, options).warning, "") << "no step follows";

  TrainOptions warming = options;  // the learning rate rises as planned
  warming.warmup = 8;
  checkpoint::TrainerState warm = saved();
  warm.run = record_now(warming);
  warming.steps = 100;
  EXPECT_EQ(resumed(warm, warming).lines, (std::vector<std::string>{"resumed from c: step 5, epoch 1, window 7 of 20",
                                                                    "resumed: --steps was 10, is 100"}));
  EXPECT_EQ(resumed(warm, warming).warning, "");
}

TEST(Resumed, ADifferentDataOrderIsRefusedUnlessForced) {
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

TEST(Resumed, AcceptsACheckpointWithoutARecord) {
  checkpoint::TrainerState old = saved();
  old.run.clear();
  const Resumed resumed = compare_with("c", old, record_now(options), options, 20);
  ASSERT_EQ(resumed.lines.size(), 2u);
  EXPECT_EQ(resumed.lines[1], "resumed: it does not say with which flags it was trained");
}

/// Makes the record of a run in pieces.
RunRecord in_pieces(const TrainOptions& of, const RunRecord& other = {}) {
  RunRecord record = record_now(of);
  record.merge(RunRecord{{"pieces", "8"},
                         {"stack", "fsdp2:pieces=8 threads:2 fp32 off"},
                         {"ranks", "2"},
                         {"threads", "1"},
                         {"instruction-set", "avx2"},
                         {"library", "oneDNN 2.6.3, avx2"},
                         {"build", "0.3.0, g++ 12.2.0, Release -O3"},
                         {"device", "cpu"},
                         {"optimizer-device", "cpu"},
                         {"precision", "fp32"},
                         {"tiling", "tokens:512"},
                         {"tiling-plans", "4 tiles"}});
  for (const auto& [name, value] : other) record[name] = value;
  return record;
}

Resumed resumed_in_pieces(const RunRecord& then, const TrainOptions& now, const RunRecord& record) {
  checkpoint::TrainerState state = saved();
  state.run = then;
  return compare_with("c", state, record, now, 20);
}

/// The lines after the first one of a run in pieces that resumes with these differences.
std::vector<std::string> lines_in_pieces(const RunRecord& other, const TrainOptions& now = options) {
  std::vector<std::string> said = resumed_in_pieces(in_pieces(options), now, in_pieces(now, other)).lines;
  said.erase(said.begin());
  return said;
}

TEST(ResumedInPieces, IsBitIdenticalForAnyRanksStrategyAndBackend) {
  using Lines = std::vector<std::string>;
  EXPECT_EQ(lines_in_pieces({}), Lines{"resumed: goes on to the bit"});
  TrainOptions now = options;
  now.grad_accum = 3;
  now.units.recompute = true;
  now.units.blocks_per_unit = 2;
  EXPECT_EQ(lines_in_pieces(
                {{"ranks", "3"}, {"stack", "zero3:prefetch=2:pieces=8 mpi fp32 off"}, {"tiling", "tiles:4"}}, now),
            (Lines{"resumed: the number of ranks was 2, is 3", "resumed: goes on to the bit"}));
}

TEST(ResumedInPieces, ReportsChangesThatBreakBitIdentity) {
  using Lines = std::vector<std::string>;
  TrainOptions now = options;
  now.lr = 0.5;
  now.clip = 0;
  now.steps = 12;
  EXPECT_EQ(
      lines_in_pieces({{"ranks", "3"}}, now),
      (Lines{"resumed: the number of ranks was 2, is 3",
             "resumed: goes on, not to the bit: --clip was 1, is 0; --lr was 0.001, is 0.5; --steps was 10, is 12"}));
  TrainOptions shared = options;
  shared.sequence = {.ranks = 2};
  EXPECT_EQ(lines_in_pieces({}, shared), Lines{"resumed: goes on, not to the bit: --sequence was whole, is ulysses:2"});
  EXPECT_EQ(lines_in_pieces({{"beta1", "0.8"}}),
            Lines{"resumed: goes on, not to the bit: --beta1 was not recorded, is 0.8"});
  EXPECT_EQ(lines_in_pieces({{"optimizer-device", "cuda"}}),
            Lines{"resumed: goes on, not to the bit: the optimizer's device was cpu, is cuda"});
  now = options;
  now.seed = 1;
  now.resume_anyway = true;
  EXPECT_EQ(lines_in_pieces({}, now).back(), "resumed: goes on, not to the bit: the order of the data begins anew");
}

TEST(ResumedInPieces, MoreStepsKeepBitIdentityIfTheLearningRateIsConstant) {
  TrainOptions before = options, now = options;
  before.lr_schedule = now.lr_schedule = LrShape::constant;
  now.steps = 12;
  EXPECT_EQ(resumed_in_pieces(in_pieces(before), now, in_pieces(now)).lines.back(), "resumed: goes on to the bit");
  EXPECT_EQ(resumed_in_pieces(in_pieces(options), now, in_pieces(now)).lines.back(),
            "resumed: goes on, not to the bit: --lr-schedule was cosine, is constant; --steps was 10, is 12");
}

TEST(ResumedInPieces, RefusesChangesThatAffectTheLastBits) {
  const std::string without = ", or leave the pieces out (:pieces=8 of --sharding) to go on without the same bits";
  EXPECT_INPUT_ERROR(
      lines_in_pieces({{"threads", "2"}}),
      "--resume c: each rank had 1 thread, and has 2, which changes the last bits; resume with --threads "
      "1" +
          without);
  EXPECT_INPUT_ERROR(
      lines_in_pieces({{"precision", "bf16"}}),
      "--precision was fp32, and is bf16, which changes the last bits; resume with --precision fp32" + without);
  EXPECT_INPUT_ERROR(lines_in_pieces({{"instruction-set", "avx512"}, {"library", "oneDNN 2.6.3, avx512_core"}}),
                     "the instruction set was avx2, and is avx512, which changes the last bits; resume on processors ");
  EXPECT_INPUT_ERROR(
      lines_in_pieces({{"library", "oneDNN 3.1.0, avx2"}}),
      "the matmul library was oneDNN 2.6.3, avx2, and is oneDNN 3.1.0, avx2, which changes the last bits; ");
  EXPECT_INPUT_ERROR(
      lines_in_pieces({{"build", "0.3.0, clang 14"}}),
      "the build was 0.3.0, g++ 12.2.0, Release -O3, and is 0.3.0, clang 14, which changes the last bits; "
      "resume with a program of that build" +
          without);
  EXPECT_INPUT_ERROR(lines_in_pieces({{"tiling-plans", "2 tiles"}, {"tiling", "budget:7"}}),
                     "the tile plan was 4 tiles, and is 2 tiles, which changes the last bits; resume with --tiling "
                     "tokens:512" +
                         without);
  EXPECT_INPUT_ERROR(
      lines_in_pieces({{"tiling-plans", ""}}),
      "the tile plan was 4 tiles, and is none, which changes the last bits; resume with the flags that it "
      "had" +
          without);
  EXPECT_INPUT_ERROR(lines_in_pieces({{"device", "cuda"}}), "the device was cpu, and is cuda");
  TrainOptions now = options;
  now.batch_size = 8;
  EXPECT_INPUT_ERROR(lines_in_pieces({}, now), "--batch-size was 4, is 8; resume with what it was, or --resume-anyway");
}

TEST(ResumedInPieces, OtherPiecesOrNoneResumeWithoutBitIdentity) {
  using Lines = std::vector<std::string>;
  const auto lines_of = [](const RunRecord& then, const RunRecord& now) {
    std::vector<std::string> said = resumed_in_pieces(then, options, now).lines;
    said.erase(said.begin());
    return said;
  };
  const RunRecord eight = in_pieces(options);
  EXPECT_EQ(lines_of(eight, in_pieces(options, {{"pieces", "6"}, {"threads", "2"}, {"precision", "bf16"}})),
            (Lines{"resumed: not to the bit: the number of pieces was 8, is 6", "resumed: --threads was 1, is 2"}));
  EXPECT_EQ(lines_of(eight, record_now(options)),
            Lines{"resumed: not to the bit: the number of pieces was 8, is none"});
  EXPECT_EQ(lines_of(record_now(options), eight),
            Lines{"resumed: not to the bit: the number of pieces was none, is 8"});
}

TEST(Resumed, ACheckpointBeyondTheLastStepIsRefused) {
  TrainOptions now = options;
  now.steps = 4;
  EXPECT_INPUT_ERROR(lines(now), "is at step 5 already");
}

}  // namespace
}  // namespace fsdp::train
