// SPDX-License-Identifier: Apache-2.0
#include <tessera/trainer/run/step_memory.hpp>

#include <optional>
#include <string>

#include <gtest/gtest.h>

#include <tessera/fsdp/optim/optimizer.hpp>
#include <tessera/fsdp/plan/cluster.hpp>
#include <tessera/fsdp/sharding/strategies.hpp>
#include <tessera/trainer/flags/flags.hpp>
#include <tessera/trainer/report/report.hpp>
#include <tessera/trainer/run/resumed.hpp>

#include "support/temporary_folder.hpp"

namespace fsdp::train {
namespace {

const TrainOptions planned = {.data = {"text"}, .seq_len = 32, .batch_size = 24};

/// Binds options to flags and validates them.
void validate_bound(TrainOptions options, std::int64_t ranks, int pieces = 0) {
  FlagSet flags;
  bind(flags, options);
  train::validate(flags, options, ranks, pieces);
}

TEST(StepSize, WithPiecesSequencesDoNotDependOnTheNumberOfRanks) {
  for (const int ranks : {1, 2, 3, 4, 5, 6, 8, 9}) {
    const StepSize size = step_size(planned, ranks, 8);
    EXPECT_EQ(size.sequences, 3) << ranks;
    EXPECT_EQ(size.micro_batches, (8 + ranks - 1) / ranks) << ranks;
  }
  const StepSize without = step_size(planned, 2, 0);
  EXPECT_EQ(without.sequences, 12);
  EXPECT_EQ(without.micro_batches, 1);
}

TEST(StepSize, WithPiecesRefusesAnotherNumberOfMicroBatches) {
  TrainOptions given = planned;
  given.grad_accum = 3;
  EXPECT_EQ(step_size(given, 3, 8).micro_batches, 3);
  EXPECT_INPUT_ERROR(step_size(given, 2, 8),
                     "--grad-accum 3: 8 pieces on 2 ranks are 4 micro-batches, which the pieces set (--sharding "
                     "...:pieces=8); leave --grad-accum out");
  EXPECT_INPUT_ERROR(step_size(given, 8, 8), "8 pieces on 8 ranks are 1 micro-batch,");
  EXPECT_INPUT_ERROR(step_size(given, 5, 0),
                     "cannot be shared by 5 ranks x 3 micro-batches; the nearest sizes that can");
  EXPECT_INPUT_ERROR(step_size(planned, 2, 7), "cannot be cut into 7 pieces (--sharding ...:pieces=7); the nearest");
  EXPECT_INPUT_ERROR(step_size(planned, 2, 48), "the nearest sizes that can: 48");
}

TEST(StepSize, RanksThatShareSequencesHaveTheSequencesOfTheirGroup) {
  for (const int ranks : {2, 4})
    for (const int sharing : {1, 2, 4}) {
      if (sharing > ranks) continue;
      for (const int micro_batches : {1, 3}) {
        TrainOptions shared = planned;
        shared.grad_accum = micro_batches;
        const StepSize whole = step_size(shared, ranks, 0);
        shared.sequence = {.ranks = sharing};
        const StepSize size = step_size(shared, ranks, 0);
        EXPECT_EQ(size.sequences, sharing * whole.sequences);
        EXPECT_EQ(size.micro_batches, micro_batches);
        EXPECT_EQ(size.ranks_per_sequence, sharing);
      }
      TrainOptions shared = planned;
      shared.sequence = {.ranks = sharing};
      const StepSize pieces = step_size(shared, ranks, 8);
      EXPECT_EQ(pieces.sequences, 3);
      EXPECT_EQ(pieces.micro_batches, 8 * sharing / ranks);
      EXPECT_EQ(plan_request(shared, ranks, Zero2{}, optim::AdamW{}).size().ranks_per_sequence, sharing);
    }
}

TEST(ValidateTrainOptions, RefusesUnevenGroupsOfRanksThatShareSequences) {
  TrainOptions shared = planned;
  shared.sequence = {.ranks = 4};
  EXPECT_NO_THROW(validate_bound(shared, 4));
  EXPECT_NO_THROW(validate_bound(shared, 12, 8));
  EXPECT_INPUT_ERROR(validate_bound(shared, 6),
                     "6 ranks cannot be cut into groups of 4, which share each sequence; give 1, 2, "
                     "3 or 6");
  EXPECT_INPUT_ERROR(validate_bound(shared, 20),
                     "a batch of 24 sequences cannot be shared by 5 groups of 4 ranks (--sequence) x 1 micro-batches; "
                     "the nearest sizes that can");
  TrainOptions other = shared;
  other.seq_len = 3;
  EXPECT_INPUT_ERROR(validate_bound(other, 4), "give a length of at least 4, or at most 3 ranks");
  other = shared;
  other.verify_every = 2;
  EXPECT_INPUT_ERROR(validate_bound(other, 4, 8),
                     "with --sequence ulysses:4 no rank has a whole one; leave one of them out");
  other = shared;
  other.sample_prompt = "once";
  other.sample_tokens = 4;
  EXPECT_INPUT_ERROR(validate_bound(other, 4), "--sample-prompt has each rank continue a whole text");
}

TEST(PlanRequest, RefusesLogitsForSharedSequences) {
  const StepSize shared{.sequence_length = 8, .ranks_per_sequence = 2};
  EXPECT_EQ(plan_request(shared, 2, 0, Purpose::evaluate).size().ranks_per_sequence, 2);
  EXPECT_INPUT_ERROR(plan_request(shared, 2, 0, Purpose::generate),
                     "sequence: 2 ranks are to share each sequence, and logits are made of whole ones; take 1 rank");
  StepSize sampling = shared;
  sampling.logit_rows = 1;
  EXPECT_INPUT_ERROR(plan_request(sampling, 2, 0), "logits are made of whole ones; take 1 rank");
}

TEST(PlanRequest, TakesThePiecesOfTheStrategy) {
  const plan::Request request = plan_request(planned, 3, Reproducible<Zero2>{{}, 8}, optim::AdamW{});
  EXPECT_EQ(request.size().sequences, 3);
  EXPECT_EQ(request.size().micro_batches, 3);
  EXPECT_EQ(plan_request(planned, 3, Zero2{}, optim::AdamW{}).size().sequences, 8);
}

TEST(ValidateTrainOptions, WithPiecesChecksBatchAndReplicatedUnits) {
  EXPECT_NO_THROW(validate_bound(planned, 5, 8));
  EXPECT_INPUT_ERROR(validate_bound(planned, 5), "cannot be shared by 5 ranks");
  EXPECT_INPUT_ERROR(validate_bound(planned, 5, 16),
                     "cannot be cut into 16 pieces (--sharding ...:pieces=16); the nearest sizes "
                     "that can: 16 and 32");
  TrainOptions other = planned;
  other.units.replicated = {"*norm*"};
  EXPECT_NO_THROW(validate_bound(other, 4));
  EXPECT_INPUT_ERROR(validate_bound(other, 4, 8),
                     "leave out either --replicate or the pieces (--sharding ...:pieces=8)");
  other = planned;
  other.batch_size = 1 << 20;
  other.seq_len = 1 << 12;
  EXPECT_INPUT_ERROR(validate_bound(other, 1, 1), "tokens; take more pieces");
}

TEST(ValidateTrainOptions, VerificationRequiresPieces) {
  TrainOptions verified = planned;
  verified.verify_every = 10;
  EXPECT_NO_THROW(validate_bound(verified, 3, 8));
  EXPECT_INPUT_ERROR(validate_bound(verified, 3),
                     "--verify-every compares pieces of a step, and this strategy cuts it into none; take "
                     "fsdp2:pieces=V, zero2:pieces=V or zero3:pieces=V (--sharding)");
  verified.cuda_graphs = CudaGraphs::on;
  EXPECT_INPUT_ERROR(validate_bound(verified, 3, 8), "--verify-every makes steps differ; leave one of them out");
  verified = planned;
  verified.verify_every = -1;
  EXPECT_INPUT_ERROR(validate_bound(verified, 3, 8), "--verify-every -1 must be at least 0");
}

TEST(StepSize, PlansForDigestsAndVerification) {
  EXPECT_FALSE(step_size(planned, 2, 8).digests || step_size(planned, 2, 8).verifies);
  TrainOptions both = planned;
  both.digests = "file";
  both.verify_every = 3;
  EXPECT_TRUE(step_size(both, 2, 8).digests && step_size(both, 2, 8).verifies);
  EXPECT_EQ(record_of(both), record_of(planned));  // digests and verification do not affect results
}

TEST(MemoryAdvice, WithPiecesSuggestsNoOtherMicroBatches) {
  const auto advice = [](int pieces) {
    return memory_advice(planned, nullptr, 2, pieces, std::nullopt, false,
                         [](const TrainOptions& o, const tiling::RunTimeTiling*, int ranks) {
                           return TakenBytes{.device = 1000 / ranks / o.grad_accum};
                         });
  };
  test::expect_parts(advice(0), {"with --grad-accum 2"});
  EXPECT_EQ(advice(8).find("--grad-accum"), std::string::npos);
  test::expect_parts(advice(8), {"on 4 ranks"});
}

/// A plan of 1000 bytes on one rank: 400 for inputs of recomputed blocks, 300 for recomputed activations.
std::string advice_for(const TrainOptions& options, std::optional<std::int64_t> memory) {
  return memory_advice(options, nullptr, 1, 8, memory, false,
                       [](const TrainOptions& o, const tiling::RunTimeTiling*, int ranks) {
                         const auto host = static_cast<std::int64_t>(400 * o.units.offload_inputs);
                         return TakenBytes{.device = (o.units.recompute ? 700 : 1000) * ranks - host, .host = host};
                       });
}

TEST(MemoryAdvice, SuggestsTheSmallestSufficientShareOfOffloadedInputs) {
  const std::string rest = " (--dry-run tells of other strategies)";
  const std::string recompute = "; the whole run takes 1000 B of each rank, and would take 700 B with --recompute";
  EXPECT_EQ(advice_for(planned, std::nullopt), recompute + rest);
  EXPECT_EQ(advice_for(planned, 700), recompute + rest) << "which suffices";
  EXPECT_NE(advice_for(planned, -5).find("(still more than 0 B)"), std::string::npos) << "the rest takes it all";
  EXPECT_EQ(advice_for(planned, 600),
            recompute + ", 600 B with --recompute --offload inputs:0.25 (100 B of host memory)" + rest);
  EXPECT_EQ(
      advice_for(planned, 299),
      recompute + ", 300 B (still more than 299 B) with --recompute --offload inputs (400 B of host memory)" + rest);
  TrainOptions offloaded = planned;
  offloaded.units = {.recompute = true, .offload_inputs = 0.5};
  EXPECT_EQ(advice_for(offloaded, 400),
            "; the whole run takes 500 B of each rank, and would take 400 B with --offload inputs:0.75 (300 B of host "
            "memory)" +
                rest);
}

TEST(MemoryLine, ReportsWhetherAStepFits) {
  EXPECT_EQ(memory_line(1024, {.bytes = 1024, .runtime = 24}, ""),
            "memory: this step fits into 1.00 KiB per rank; it needs 1.00 KiB, 24 B of them besides tensors");
  EXPECT_EQ(
      memory_line(1024, {.bytes = 1025, .runtime = 24}, "; advice"),
      "memory: this step does not fit into 1.00 KiB per rank; it needs 1.00 KiB, 24 B of them besides tensors; advice");
}

TEST(GivenMemory, IsTheMemoryForTensorsAfterRuntimeOverhead) {
  TrainOptions given = planned;
  given.memory = "257MiB";
  EXPECT_EQ(given_memory(given, "cpu", {}), std::int64_t{257 << 20} - plan::known_cluster("epyc").runtime_bytes);
  given.memory = "8GiB";
  const plan::Cluster gpus = plan::known_cluster("h100");
  EXPECT_EQ(given_memory(given, "cuda", {.all = 1}), (std::int64_t{8} << 30) - gpus.runtime_bytes);
  EXPECT_EQ(given_memory(given, "cuda", {.all = 3, .exchanging = 1}),
            (std::int64_t{8} << 30) - gpus.runtime_bytes - 2 * gpus.communicator_bytes - gpus.exchange_bytes);
  given.memory = "1MiB";
  EXPECT_INPUT_ERROR(
      given_memory(given, "cpu", {}),
      "--memory 1MiB is the memory of a rank, whose process takes 256.00 MiB besides tensors; give more");
}

TEST(HostMemory, TooLittleIsRefusedWithASufficientShare) {
  const auto host = [](double share) { return static_cast<std::int64_t>(1000 * share); };
  EXPECT_NO_THROW(require_host_memory(1, 1000, host));
  EXPECT_INPUT_ERROR(
      require_host_memory(1, 999, host),
      "--offload inputs: a rank takes 1000 bytes (1000 B) of its machine's memory, which has 999 (999 B) "
      "for it; inputs:0.99 would do, or give fewer ranks a machine or shorter sequences");
  EXPECT_INPUT_ERROR(require_host_memory(0.5, 257, host), "for it; inputs:0.25 would do");
  EXPECT_INPUT_ERROR(require_host_memory(1, 9, host), "for it; no share would do; give fewer ranks a machine");
}

TEST(InputShare, RequiresRecomputationAndIsNotRecorded) {
  TrainOptions offloaded = planned;
  offloaded.units.offload_inputs = 0.25;
  EXPECT_INPUT_ERROR(validate_bound(offloaded, 3, 8),
                     "--offload inputs:0.25 is for blocks that keep their input alone; add --recompute");
  offloaded.units.recompute = true;
  EXPECT_NO_THROW(validate_bound(offloaded, 3, 8));
  TrainOptions kept = planned;
  kept.units.recompute = true;
  EXPECT_EQ(record_of(offloaded), record_of(kept));
}

TEST(VerificationText, ReportsItsCost) {
  EXPECT_EQ(report::verification_text(1, 8, 8),
            "every step, each rank computes one piece more, of another rank: 100.0 % of the time of all steps");
  EXPECT_EQ(report::verification_text(10, 8, 3),
            "every 10 steps, each rank computes one piece more, of another rank: 3.3 % of the time of all steps");
}

TEST(RoundsText, ReportsTheCostOfIncompleteRounds) {
  EXPECT_EQ(report::rounds_text(8, 3),
            "8 pieces on 3 ranks: 3 rounds, of which the last is not full; a step takes as long as one of 9 pieces");
  EXPECT_EQ(report::rounds_text(8, 4), "8 pieces on 4 ranks: 2 rounds");
  EXPECT_EQ(report::rounds_text(1, 1), "1 piece on 1 rank: 1 round");
  EXPECT_EQ(report::rounds_text(8, 4, 2), "8 pieces on 2 groups of 2 ranks: 4 rounds");
  EXPECT_EQ(report::rounds_text(1, 4, 4), "1 piece on 1 group of 4 ranks: 1 round");
  EXPECT_EQ(report::rounds_text(2, 4),
            "2 pieces on 4 ranks: 1 round, which is not full; a step takes as long as one of 4 pieces");
}

}  // namespace
}  // namespace fsdp::train
