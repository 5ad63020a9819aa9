// SPDX-License-Identifier: Apache-2.0
// An estimate counts exactly the collectives and bytes of a run.
#include <gtest/gtest.h>

#include <tessera/comm/threads.hpp>
#include <tessera/fsdp/models/llama.hpp>
#include <tessera/fsdp/sharding/run_time.hpp>

#include <support/small_llama.hpp>
#include <support/stacks/planned_llama.hpp>

namespace fsdp::plan {
namespace {

using testing::StrategyCase;

TEST(Estimate, CountsExactlyTheCollectivesOfARun) {
  for (const RunTimeAny& strategy : {RunTimeAny{.strategy = FullyShard<>{}},
                                     {.strategy = FullyShard<ReshardAfterForward::no>{}},
                                     {.strategy = Zero1{}},
                                     {.strategy = Zero3{.persistence_threshold = 64}}})
    for (const StrategyCase& how : {StrategyCase{.ranks = 1},
                                    {.ranks = 2, .micro_batches = 3},
                                    {.ranks = 3, .micro_batches = 2, .tied = true},
                                    {.ranks = 2, .units = {.recompute = true}}})
      test::expect_calls_of_a_run(strategy, how);
}

TEST(Estimate, CountsTheCollectivesOfBothMeshAxes) {
  for (const RunTimeAny& strategy : {RunTimeAny{.strategy = HybridShard<RunTimeSharded>{.group = 2}},
                                     {.strategy = FullyShard<ReshardAfterForward::to_group>{.group = 2}}})
    test::expect_calls_of_a_run(strategy, {.ranks = 4, .micro_batches = 2});
}

const test::PlannedLlama llama{.config = test::uneven_llama()};

/// The estimate of two sequences of seven tokens, in two micro-batches.
Estimate estimate_on(const Cluster& cluster) {
  return test::estimate(
      llama, {.rank = most_loaded, .shape = {.size = {.sequences = 2, .sequence_length = 7, .micro_batches = 2}}},
      cluster);
}

TEST(Estimate, UsesTheBytesOfTheDryRunAndTheTokensOfAllRanks) {
  const Estimate found = estimate_on(known_cluster("epyc", 4));
  const Plan plan = test::dry_run(
      llama,
      {.ranks = 4, .rank = most_loaded, .shape = {.size = {.sequences = 2, .sequence_length = 7, .micro_batches = 2}}});

  EXPECT_EQ(found.plan.bytes, plan.bytes);
  EXPECT_EQ(found.device.needed, plan.peak_bytes() + found.cluster.runtime_bytes);
  EXPECT_EQ(found.tokens, 4 * 2 * 2 * 7);
  EXPECT_TRUE(found.fits());
  EXPECT_DOUBLE_EQ(found.compute_seconds + found.exposed_collectives + found.exposed_copies, found.seconds);
}

TEST(Estimate, CountsAttentionFlopsPerDocumentLikeARun) {
  const Llama<Stack<FullyShard<>, comm::Threads<>, Fp32, tiling::Untiled>> model(llama.config);
  Cluster slow = known_cluster("epyc");
  slow.attention = 1e6;  // so that attention dominates the time
  const auto of_documents = [&](double length) {
    const Request request{
        .rank = most_loaded, .document_length = length, .shape = {.size = {.sequences = 2, .sequence_length = 8}}};
    return test::estimate(llama, request, slow);
  };
  const Estimate whole = of_documents(0), two = of_documents(2);
  EXPECT_EQ(whole.model_flops, 2 * 2 * model.flops(8, 8 * 8));
  EXPECT_EQ(two.model_flops, 2 * 2 * model.flops(8, 4 * 2 * 2));
  EXPECT_NEAR(two.compute_seconds / whole.compute_seconds, 2.0 / 8, 1e-3);
  EXPECT_EQ(two.plan.bytes, whole.plan.bytes);
  EXPECT_EQ(of_documents(8).seconds, whole.seconds);
}

TEST(Estimate, ReportsByHowMuchAStepExceedsMemory) {
  Cluster cluster = known_cluster("epyc");
  const std::int64_t needed = estimate_on(cluster).device.needed;
  cluster.memory = needed - 5;
  EXPECT_EQ(estimate_on(cluster).device.left(), -5);
  EXPECT_FALSE(estimate_on(cluster).fits());
}

TEST(Estimate, IsDeterministicAndFasterOnFasterLinks) {
  Cluster cluster = known_cluster("epyc", 4);
  const double seconds = estimate_on(cluster).seconds;
  EXPECT_EQ(estimate_on(cluster).seconds, seconds);
  cluster.network_latency /= 2;
  EXPECT_LT(estimate_on(cluster).seconds, seconds);
}

}  // namespace
}  // namespace fsdp::plan
