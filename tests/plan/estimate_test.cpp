// SPDX-License-Identifier: Apache-2.0
// What an estimate counts is what a run then does: collectives one by one, and bytes to the byte.
#include <tessera/fsdp/plan/estimate.hpp>

#include <string>
#include <vector>

#include <gtest/gtest.h>

#include <tessera/fsdp/sharding/run_time.hpp>
#include <tessera/fsdp/testing/strategy_runs.hpp>

namespace fsdp::plan {
namespace {

using testing::StrategyCase;

std::string in_words(comm::Op op, DType dtype, std::int64_t bytes) {
  return message(name_of(op), " ", name_of(dtype), " ", bytes);
}

/// The collectives of an axis in a step as it was recorded: the exchange of counts, the pass, the optimizer.
std::vector<std::string> planned_calls(const StepRecord& record, Axis axis) {
  std::vector<std::string> list;
  std::vector<RecordedCollective> all = record.counts.collectives;
  const std::vector<RecordedCollective> step = record.collectives();
  all.insert(all.end(), step.begin(), step.end());
  for (const RecordedCollective& each : all)
    if (each.axis == axis) list.push_back(in_words(each.op, each.dtype, each.bytes));
  return list;
}

/// Compares the last step of a run with the record of a dry run of the same step.
template <class Strategy>
struct Compared {
  const Strategy& strategy;
  int steps = 2;
  double lr = 1e-2;
  bool as_ranks = false;

  template <class Training>
  void begin(Training&) const {}
  template <class Training>
  void end(Training& training) const {
    StepRecord record;
    Request request = training.request();
    request.record = &record;
    const Plan plan = dry_run(training.module().model(), strategy, {}, request, optim::AdamW{});
    EXPECT_EQ(plan.bytes, training.plan().bytes) << "recording changes no byte";
    const auto communicators = training.module().communicators();
    const std::vector<Axis> axes = {Axis::world, Axis::across, Axis::shard};
    for (std::size_t i = 0; i < communicators.size(); ++i) {
      if (communicators[i]->size() == 1) continue;
      std::vector<std::string> called;
      for (const comm::Record& each : communicators[i]->monitor().records)
        called.push_back(in_words(each.op, each.dtype, each.bytes));
      EXPECT_EQ(planned_calls(record, axes[i]), called) << name_of(axes[i]);
      EXPECT_EQ(record.members(axes[i]).ranks, communicators[i]->size());
    }
  }
};

template <class Strategy>
void expect_calls_of_a_run(const Strategy& strategy, const StrategyCase& how) {
  SCOPED_TRACE(message(policy_text(strategy), ", ", how.in_words()));
  const testing::StrategyRun run = testing::train_with(strategy, how, optim::AdamW{}, Compared<Strategy>{strategy});
  EXPECT_EQ(run.planned, run.taken);
}

TEST(Estimate, CountsTheCollectivesOfARunOneByOne) {
  for (const RunTimeSharded& strategy : {RunTimeSharded{.strategy = FullyShard<>{}},
                                         {.strategy = FullyShard<ReshardAfterForward::no>{}},
                                         {.strategy = Zero1{}},
                                         {.strategy = Zero3{.persistence_threshold = 64}}})
    for (const StrategyCase& how : {StrategyCase{.ranks = 1},
                                    {.ranks = 2, .micro_batches = 3},
                                    {.ranks = 3, .micro_batches = 2, .tied = true},
                                    {.ranks = 2, .units = {.recompute = true}}})
      expect_calls_of_a_run(strategy, how);
}

TEST(Estimate, CountsThoseOfBothAxesOfAMesh) {
  for (const RunTimeGrouped& strategy : {RunTimeGrouped{.strategy = HybridShard<RunTimeSharded>{.group = 2}},
                                         {.strategy = FullyShard<ReshardAfterForward::to_group>{.group = 2}}})
    expect_calls_of_a_run(strategy, {.ranks = 4, .micro_batches = 2});
}

/// The estimate of a small Llama with this strategy.
template <class Strategy>
Estimate estimate_on(const Cluster& cluster, const Strategy& strategy, int micro_batches = 2) {
  using Model = testing::StrategyModel<Strategy>;
  const Request request{
      .rank = most_loaded, .sequences = 2, .shape = {.sequence_length = 7, .micro_batches = micro_batches}};
  return estimate(Model(testing::detail::strategy_config(false)), strategy, {}, request, cluster, optim::AdamW{});
}

TEST(Estimate, IsOfTheDryRunsBytesAndOfTheTokensOfAllRanks) {
  const RunTimeSharded strategy{.strategy = FullyShard<>{}};
  const Estimate found = estimate_on(known_cluster("epyc", 4), strategy);
  using Model = testing::StrategyModel<RunTimeSharded>;
  const Plan plan =
      dry_run(Model(testing::detail::strategy_config(false)), strategy, {},
              {.ranks = 4, .rank = most_loaded, .sequences = 2, .shape = {.sequence_length = 7, .micro_batches = 2}},
              optim::AdamW{});

  EXPECT_EQ(found.plan.bytes, plan.bytes);
  EXPECT_EQ(found.device.needed, plan.peak_bytes() + found.cluster.runtime_bytes);
  EXPECT_EQ(found.tokens, 4 * 2 * 2 * 7);
  EXPECT_TRUE(found.fits());
  EXPECT_DOUBLE_EQ(found.compute_seconds + found.exposed_collectives + found.exposed_copies, found.seconds);
}

TEST(Estimate, CountsAttentionOfDocumentsAsTheModelCountsARun) {
  const RunTimeSharded strategy{.strategy = FullyShard<>{}};
  using Model = testing::StrategyModel<RunTimeSharded>;
  const Model model(testing::detail::strategy_config(false));
  Cluster slow = known_cluster("epyc");
  slow.attention = 1e6;  // so that attention is nearly all
  const auto of_documents = [&](double length) {
    const Request request{
        .rank = most_loaded, .sequences = 2, .document_length = length, .shape = {.sequence_length = 8}};
    return estimate(model, strategy, {}, request, slow, optim::AdamW{});
  };
  const Estimate whole = of_documents(0), two = of_documents(2);
  EXPECT_EQ(whole.model_flops, 2 * 2 * model.flops(8, 8 * 8));
  EXPECT_EQ(two.model_flops, 2 * 2 * model.flops(8, 4 * 2 * 2));
  EXPECT_NEAR(two.compute_seconds / whole.compute_seconds, 2.0 / 8, 1e-3);
  EXPECT_EQ(two.plan.bytes, whole.plan.bytes);
  EXPECT_EQ(of_documents(8).seconds, whole.seconds);
}

TEST(Estimate, SaysByHowMuchAStepDoesNotFit) {
  Cluster cluster = known_cluster("epyc");
  const RunTimeSharded strategy{.strategy = FullyShard<>{}};
  const std::int64_t needed = estimate_on(cluster, strategy).device.needed;
  cluster.memory = needed - 5;
  EXPECT_EQ(estimate_on(cluster, strategy).device.left(), -5);
  EXPECT_FALSE(estimate_on(cluster, strategy).fits());
}

TEST(Estimate, IsTheSameEveryTimeAndFasterOnFasterLinks) {
  const RunTimeSharded strategy{.strategy = FullyShard<>{}};
  Cluster cluster = known_cluster("epyc", 4);
  const double seconds = estimate_on(cluster, strategy).seconds;
  EXPECT_EQ(estimate_on(cluster, strategy).seconds, seconds);
  cluster.network_latency /= 2;
  EXPECT_LT(estimate_on(cluster, strategy).seconds, seconds);
}

}  // namespace
}  // namespace fsdp::plan
