// SPDX-License-Identifier: Apache-2.0
// Estimates for a user-defined loop on a cluster: times calculated by hand, and the bytes and collectives of the run.
#include <tessera/fsdp/plan/foreign_estimate.hpp>

#include <cmath>
#include <limits>
#include <string>
#include <utility>
#include <vector>

#include <gtest/gtest.h>

#include <support/errors.hpp>
#include <tessera/comm/threads.hpp>
#include <tessera/fsdp/core/policy_text.hpp>
#include <tessera/fsdp/module/stack.hpp>
#include <tessera/fsdp/optim/optimizer.hpp>
#include <tessera/fsdp/precision/policies.hpp>
#include <tessera/fsdp/sharding/run_time.hpp>
#include <tessera/fsdp/testing/queued/queued_cpu.hpp>

namespace fsdp::plan {
namespace {

using sharding::Action;

template <class Strategy>
using On = Sharded<Stack<Strategy, comm::Threads<>, Fp32>, optim::Sgd>;
using Queued = Sharded<Stack<FullyShard<>, comm::Threads<testing::QueuedCpu>, Fp32>, optim::Sgd>;

/// Three units of 1 MB.
std::vector<Unit> three_units() {
  std::vector<Unit> units;
  for (const char* name : {"first", "second", "third"})
    units.push_back({.name = name, .parameters = {{.name = std::string(name) + ".w", .shape = {500, 500}}}});
  return units;
}

/// A rank receives 500 kB/s from the other ranks of its node; all other costs are negligible.
Cluster cluster_of(std::int64_t ranks, bool queues) {
  Cluster cluster = known_cluster("h100", ranks);
  cluster.memory_bandwidth = 1e15;
  cluster.node_bandwidth = 5e5;
  cluster.collective_latency = cluster.node_latency = 0;
  cluster.collectives_have_queues = queues;
  cluster.beside_collectives = 1;
  return cluster;
}

/// Forward takes 2 s, backward 3 s.
ForeignStep two_and_three() {
  return {.seconds = [](const sharding::Task& task) { return task.action == Action::forward ? 2 : 3; }, .samples = 44};
}

using Times = std::vector<std::pair<double, double>>;

/// The start and end times of a track's tasks, rounded to 0.01 s, without tasks of zero duration.
Times times(const Estimate& step, Track track) {
  const auto rounded = [](double seconds) { return std::round(seconds * 100) / 100; };
  Times list;
  for (const TimedWork& each : step.works)
    if (each.work.work.track == static_cast<int>(track) && rounded(each.span.end) > rounded(each.span.begin))
      list.emplace_back(rounded(each.span.begin), rounded(each.span.end));
  return list;
}

TEST(ForeignEstimate, WithoutQueuesComputationAndCollectivesAlternate) {
  const Estimate step = estimate<On<FullyShard<>>>(three_units(), {}, {}, two_and_three(), cluster_of(2, false));

  EXPECT_NEAR(step.compute_seconds, 3 * 2 + 3 * 3, 1e-3);
  // Three gathers before forward; before backward two, since the last unit's weights are kept; three reductions.
  EXPECT_NEAR(step.exposed_collectives, 3 + 2 + 3, 1e-3);
  EXPECT_NEAR(step.seconds, 15 + 8, 1e-3);
  EXPECT_NEAR(step.tokens_per_second(), 44.0 / 23, 1e-3);
  EXPECT_DOUBLE_EQ(step.mfu(), 0) << "no FLOPs are stated";
}

TEST(ForeignEstimate, WithQueuesCollectivesOverlapWithComputation) {
  const Estimate step = estimate<Queued>(three_units(), {}, {}, two_and_three(), cluster_of(2, true));

  EXPECT_EQ(times(step, Track::compute), (Times{{1, 3}, {3, 5}, {5, 7}, {7, 10}, {10, 13}, {13, 16}}));
  EXPECT_NEAR(step.exposed_collectives, 1 + 1, 1e-3) << "the first gather, and the last reduction";
  EXPECT_NEAR(step.seconds, 1 + 15 + 1, 1e-3);
}

TEST(ForeignEstimate, ComputationTimesMayDifferPerUnitAndOrder) {
  On<FullyShard<>>::Settings settings;
  settings.orders = {mirrored({0, 1, 2, 1}), mirrored({0}, 2)};
  ForeignStep step = {.seconds = [](const sharding::Task& task) { return 1 + task.index; }, .order = 1};
  EXPECT_NEAR(estimate<On<FullyShard<>>>(three_units(), {}, settings, step, cluster_of(1, false)).compute_seconds,
              1 + 3 + 1, 1e-3);
  step.order = 0;
  EXPECT_NEAR(estimate<On<FullyShard<>>>(three_units(), {}, settings, step, cluster_of(1, false)).compute_seconds,
              2 * (1 + 2 + 3 + 2), 1e-3);
}

TEST(ForeignEstimate, QueuesFollowTheScheduleOfTheRequestedStep) {
  Queued::Settings settings;
  settings.orders = {chain(3), mirrored({1}, 2)};
  settings.micro_batches = 2;
  ForeignStep step = two_and_three();
  step.order = 1;
  step.micro_batches = 1;
  const Estimate other = estimate<Queued>(three_units(), {}, settings, step, cluster_of(2, true));
  // Forward of the second unit, then forward and backward of the third as one computation, then backward of the second.
  EXPECT_EQ(times(other, Track::compute), (Times{{1, 3}, {3, 6}, {6, 9}}));
  EXPECT_EQ(times(other, Track::world), (Times{{0, 1}, {1, 2}, {6, 7}, {9, 10}}))
      << "two gathers, of which the one before the head is kept, and a reduction behind each backward";
  EXPECT_NEAR(other.seconds, 10, 1e-3);

  const auto computations = [&](int order, int micro_batches) {
    step.order = order;
    step.micro_batches = micro_batches;
    return times(estimate<Queued>(three_units(), {}, settings, step, cluster_of(2, true)), Track::compute).size();
  };
  EXPECT_EQ(computations(1, 2), 2 * 3u);
  EXPECT_EQ(computations(0, 1), computations(0, 2) / 2);
  EXPECT_THROW(computations(2, 1), LogicError);
  EXPECT_THROW(computations(0, 3), LogicError);
}

/// Makes two steps and returns the collectives of the second one.
template <class Tested>
comm::MeshTraffic traffic_of_a_step(const typename Tested::Strategy& strategy,
                                    const typename Tested::Settings& settings, int ranks) {
  comm::MeshTraffic traffic;
  comm::Threads<>::run(ranks, {}, [&](comm::Threads<>& communicator) {
    Tested sharded(communicator, three_units(), strategy, settings);
    sharded.initialize(1);
    comm::MeshTraffic before;
    for (int i = 0; i < 2; ++i) {
      before = sharded.traffic();
      auto pass = sharded.train();
      while (pass.next().has_value()) pass.enter().done();
      pass.finish();
      sharded.step(1, {.lr = 0.1});
    }
    if (communicator.rank() == 0) traffic = sharded.traffic() - before;
  });
  return traffic;
}

template <class Strategy>
void expect_what_a_run_does(const Strategy& strategy, int ranks) {
  SCOPED_TRACE(message(policy_text(strategy), " on ", ranks));
  using Tested = On<Strategy>;
  typename Tested::Settings settings;
  settings.micro_batches = 2;
  settings.rules.clip = 1;
  ForeignStep stated = two_and_three();
  stated.own_bytes = 1000;
  const Estimate step = estimate<Tested>(three_units(), strategy, settings, stated, cluster_of(ranks, false));

  device::BytesByKind bytes = Tested::plan(ranks, step.plan.rank, three_units(), strategy, settings).bytes;
  bytes[static_cast<std::size_t>(device::MemoryKind::activations)] += 1000;
  EXPECT_EQ(step.plan.bytes, bytes);
  EXPECT_EQ(step.traffic, traffic_of_a_step<Tested>(strategy, settings, ranks));
  EXPECT_GE(step.compute_seconds, 2 * 15);
}

TEST(ForeignEstimate, MatchesTheBytesAndCollectivesOfARun) {
  for (const RunTimeAny& strategy : {RunTimeAny{.strategy = FullyShard<>{}},
                                     {.strategy = FullyShard<ReshardAfterForward::no>{}},
                                     {.strategy = Zero1{}},
                                     {.strategy = Zero2{}}})
    for (const int ranks : {1, 2, 3}) expect_what_a_run_does(strategy, ranks);
  expect_what_a_run_does(Replicated{}, 2);
  expect_what_a_run_does(HybridShard<FullyShard<>>{.group = 2}, 4);
}

TEST(ForeignEstimate, ReportsWhatDoesNotFit) {
  Cluster cluster = cluster_of(2, false);
  cluster.runtime_bytes = 0;
  cluster.exchange_bytes = 0;
  cluster.memory = 1 << 24;
  ForeignStep step = two_and_three();
  EXPECT_TRUE(estimate<On<FullyShard<>>>(three_units(), {}, {}, step, cluster).fits());
  step.own_bytes = cluster.memory;
  const Estimate more = estimate<On<FullyShard<>>>(three_units(), {}, {}, step, cluster);
  EXPECT_FALSE(more.fits());
  EXPECT_EQ(more.device.needed, more.plan.peak_bytes());
}

TEST(ForeignEstimate, RefusesInvalidTimes) {
  using Tested = On<FullyShard<>>;
  const auto refused = [](const ForeignStep& step) {
    return test::error_of<InputError>(
        [&] { (void)estimate<Tested>(three_units(), {}, {}, step, cluster_of(2, false)); });
  };
  EXPECT_EQ(refused({}), "plan: nothing says how long computations take; give ForeignStep::seconds");
  EXPECT_EQ(refused({.seconds = [](const sharding::Task& task) { return task.index == 1 ? -1.0 : 1; }}),
            "plan: forward second is said to take -1 seconds; a computation takes 0 or more");
  EXPECT_FALSE(refused({.seconds = [](const auto&) { return std::numeric_limits<double>::quiet_NaN(); }}).empty());
  EXPECT_FALSE(refused({.seconds = [](const auto&) { return 1.0; }, .own_bytes = -1}).empty());
}

}  // namespace
}  // namespace fsdp::plan
