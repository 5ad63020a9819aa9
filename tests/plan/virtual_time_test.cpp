// SPDX-License-Identifier: Apache-2.0
#include <utility>
#include <vector>

#include <gtest/gtest.h>

#include <tessera/fsdp/core/error.hpp>
#include <tessera/fsdp/plan/step_estimate.hpp>
#include <tessera/fsdp/plan/step_works.hpp>
#include <tessera/fsdp/sharding/check.hpp>

namespace fsdp::plan {
namespace {

constexpr ByLink whole_network = {0, 1, 0};
constexpr ByLink half_network = {0, 0.5, 0};

TEST(VirtualTime, TasksOfATrackRunInSequenceAndTracksRunInParallel) {
  const std::vector<Work> works = {{.track = 0, .seconds = 2}, {.track = 1, .seconds = 3}, {.track = 0, .seconds = 1}};

  EXPECT_EQ(spans_of(works), (std::vector<Span>{{0, 2}, {0, 3}, {2, 3}}));
}

TEST(VirtualTime, ATaskStartsAfterItsLastDependencyAndRecordsIt) {
  const std::vector<Work> works = {{.track = 1, .seconds = 2},
                                   {.track = 2, .seconds = 5},
                                   {.track = 0, .seconds = 1},
                                   {.track = 0, .after = {0, 1}, .seconds = 1},
                                   {.track = 0, .after = {0}, .seconds = 1}};

  EXPECT_EQ(spans_of(works), (std::vector<Span>{{0, 2}, {0, 5}, {0, 1}, {5, 6, 1}, {6, 7}}));
}

TEST(VirtualTime, TwoTransfersShareTheBandwidthOfOneLink) {
  const std::vector<Work> works = {{.track = 1, .transfer = 1, .demand = whole_network},
                                   {.track = 2, .transfer = 3, .demand = whole_network}};

  EXPECT_EQ(spans_of(works), (std::vector<Span>{{0, 2}, {0, 4}})) << "after 2 s the second has done 1 of 3";
}

TEST(VirtualTime, TransfersThatDoNotSaturateALinkRunAtFullSpeed) {
  const std::vector<Work> works = {{.track = 1, .transfer = 2, .demand = half_network},
                                   {.track = 2, .transfer = 3, .demand = half_network}};

  EXPECT_EQ(spans_of(works), (std::vector<Span>{{0, 2}, {0, 3}}));
}

TEST(VirtualTime, TransfersOnDifferentLinksDoNotInterfere) {
  const std::vector<Work> works = {{.track = 1, .transfer = 2, .demand = {1, 0, 0}},
                                   {.track = 2, .transfer = 2, .demand = {0, 1, 0}},
                                   {.track = 3, .transfer = 2, .demand = {0, 0, 1}}};

  EXPECT_EQ(spans_of(works), (std::vector<Span>{{0, 2}, {0, 2}, {0, 2}}));
}

TEST(VirtualTime, ComputationSlowsDownOnlyWhileTransfersRun) {
  const std::vector<Work> works = {{.track = 0, .seconds = 3, .beside = 0.5},
                                   {.track = 1, .seconds = 1, .transfer = 2, .demand = whole_network},
                                   {.track = 2, .seconds = 3}};

  EXPECT_EQ(spans_of(works), (std::vector<Span>{{0, 4}, {0, 3}, {0, 3}}))
      << "1 s alone, 1 of the 2 s of the transfer, 1 s alone; latency slows nothing";
}

TEST(VirtualTime, CopiesToTheHostDoNotSlowDownComputation) {
  const std::vector<Work> works = {{.track = 0, .seconds = 2, .beside = 0.5},
                                   {.track = 1, .transfer = 2, .demand = {0, 0, 1}}};

  EXPECT_EQ(spans_of(works), (std::vector<Span>{{0, 2}, {0, 2}}));
}

TEST(VirtualTime, LatencyOccupiesNoLink) {
  const std::vector<Work> works = {{.track = 1, .seconds = 1, .transfer = 1, .demand = whole_network},
                                   {.track = 2, .transfer = 1, .demand = whole_network}};

  EXPECT_EQ(spans_of(works), (std::vector<Span>{{0, 2}, {0, 1}}));
}

TEST(VirtualTime, TasksOfZeroDurationKeepTheOrder) {
  const std::vector<Work> works = {{.track = 0, .seconds = 1}, {.track = 1, .after = {0}}, {.track = 0, .after = {1}}};

  const std::vector<Span> spans = spans_of(works);

  EXPECT_EQ(spans[1].begin, 1);
  EXPECT_EQ(spans[2].end, 1);
}

TEST(VirtualTime, IsDeterministic) {
  std::vector<Work> works;
  for (int i = 0; i < 3000; ++i)
    works.push_back({.track = i % 5,
                     .after = i > 7 ? std::vector<int>{i - 7} : std::vector<int>{},
                     .seconds = 1e-3 * (i % 11),
                     .transfer = 1e-3 * (i % 13),
                     .demand = {0.1 * (i % 7), 0.2 * (i % 5), 0}});

  EXPECT_EQ(spans_of(works), spans_of(works));
}

TEST(VirtualTime, AttentionThatCudnnDoesNotComputeHasARateOfItsOwn) {
  Cluster cluster = known_cluster("h100", 2);
  cluster.attention = 100, cluster.attention_own = 50;
  const RecordedWork work{.counters = {.attention_flops = 300, .own_attention_flops = 100}};
  EXPECT_DOUBLE_EQ(compute_seconds(cluster, work, DType::bf16), 2 + 2);
  cluster.attention_own = 0;
  EXPECT_DOUBLE_EQ(compute_seconds(cluster, work, DType::bf16), 3);
}

TEST(VirtualTime, RefusesATaskThatWaitsForItself) {
  const std::vector<Work> works = {{.track = 0, .after = {0}, .seconds = 1}};
  EXPECT_THROW(spans_of(works), LogicError);
}

// A hand-written schedule of three units with times calculated by hand: 1 MB/s everywhere, no latency.

using sharding::Action;

Cluster cluster_of(bool queues) {
  Cluster cluster = known_cluster("h100", 2);
  cluster.memory_bandwidth = cluster.node_bandwidth = cluster.network_bandwidth = cluster.host_bandwidth = 1e6;
  cluster.collective_latency = cluster.node_latency = cluster.network_latency = 0;
  cluster.collectives_have_queues = queues;
  cluster.beside_collectives = 1;
  return cluster;
}

RecordedWork gathers(std::int64_t seconds) {  // on two ranks: a rank receives half of the bytes
  return {.collectives = {{.op = comm::Op::all_gather, .bytes = 2'000'000 * seconds}}};
}
RecordedWork computes(std::int64_t seconds) { return {.counters = {.elementwise_bytes = 1'000'000 * seconds}}; }

/// Forward through three units with two slots; the third gather waits for the first slot and takes `last` seconds.
StepRecord three_units(std::int64_t last) {
  StepRecord record;
  record.problem.pass = sharding::Pass::evaluate;
  for (const int unit : {0, 1, 2}) {
    record.problem.units.push_back({.groups = {unit}});
    record.problem.groups.push_back({.elements = 1, .slot_elements = 1, .axes = {.shard = 2}});
  }
  record.tasks = {{{.action = Action::gather, .index = 0, .slot = 0}, gathers(2)},
                  {{.action = Action::gather, .index = 1, .slot = 1}, gathers(2)},
                  {{.action = Action::forward, .index = 0}, computes(3)},
                  {{.action = Action::release, .index = 0, .slot = 0}, {}},
                  {{.action = Action::gather, .index = 2, .slot = 0}, gathers(last)},
                  {{.action = Action::forward, .index = 1}, computes(3)},
                  {{.action = Action::release, .index = 1, .slot = 1}, {}},
                  {{.action = Action::loss, .index = 2}, computes(3)},
                  {{.action = Action::release, .index = 2, .slot = 0}, {}}};
  for (const RecordedTask& each : record.tasks) record.schedule.push_back(each.task);
  record.axes = {{Axis::world, {.ranks = 2}}};
  sharding::check(record.schedule, record.problem);
  return record;
}

Estimate estimate_of(const StepRecord& record, bool queues) {
  return plan::estimate_of(Plan(), record, {.tokens = 110, .flops = 1e12}, cluster_of(queues));
}

/// The start and end times of a track's tasks.
std::vector<std::pair<double, double>> works_of(const Estimate& estimate, Track track) {
  std::vector<std::pair<double, double>> list;
  for (const TimedWork& each : estimate.works)
    if (each.work.work.track == static_cast<int>(track)) list.emplace_back(each.span.begin, each.span.end);
  return list;
}

using Times = std::vector<std::pair<double, double>>;

TEST(StepWorks, GathersOverlapWithComputationInTheOrderOfEvents) {
  const Estimate step = estimate_of(three_units(2), true);

  EXPECT_EQ(works_of(step, Track::world), (Times{{0, 2}, {2, 4}, {5, 7}})) << "the third waits for the first slot";
  EXPECT_EQ(works_of(step, Track::compute), (Times{{2, 5}, {5, 8}, {8, 11}, {11, 11}}));
  EXPECT_DOUBLE_EQ(step.seconds, 11);
  EXPECT_DOUBLE_EQ(step.compute_seconds, 9);
  EXPECT_DOUBLE_EQ(step.exposed_collectives, 2);
  EXPECT_DOUBLE_EQ(step.tokens_per_second(), 10);
}

TEST(StepWorks, ASlowGatherIsExposedWhereComputationCannotHideIt) {
  const Estimate step = estimate_of(three_units(6), true);

  EXPECT_EQ(works_of(step, Track::compute), (Times{{2, 5}, {5, 8}, {11, 14}, {14, 14}}));
  EXPECT_DOUBLE_EQ(step.exposed_collectives, 2 + 3);
}

TEST(StepWorks, ComputationSlowsDownDuringGathers) {
  Cluster cluster = cluster_of(true);
  cluster.beside_collectives = 0.5;
  const Estimate step = plan::estimate_of({}, three_units(2), {.tokens = 110}, cluster);

  EXPECT_EQ(works_of(step, Track::world), (Times{{0, 2}, {2, 4}, {6, 8}}));
  EXPECT_EQ(works_of(step, Track::compute), (Times{{2, 6}, {6, 10}, {10, 13}, {13, 13}})) << "1 of 3 s beside a gather";
}

TEST(StepWorks, WithoutQueuesACollectiveBlocksComputation) {
  const Estimate step = estimate_of(three_units(2), false);

  EXPECT_EQ(works_of(step, Track::world), Times());
  EXPECT_EQ(works_of(step, Track::compute), (Times{{0, 2}, {2, 4}, {4, 7}, {7, 9}, {9, 12}, {12, 15}, {15, 15}}));
  EXPECT_DOUBLE_EQ(step.exposed_collectives, 6);
  EXPECT_DOUBLE_EQ(step.compute_seconds, 9);
}

TEST(StepWorks, AGatherAndAnExchangeShareTheNodeLink) {
  StepRecord record = three_units(2);
  record.axes.push_back({Axis::sequence, {.ranks = 2}});
  record.counts.collectives = {{.axis = Axis::sequence, .op = comm::Op::all_to_all, .bytes = 2'000'000}};  // 1 s
  const Estimate step = estimate_of(record, true);

  EXPECT_EQ(works_of(step, Track::sequence), (Times{{0, 2}})) << "half of the link until both are over";
  EXPECT_EQ(works_of(step, Track::world), (Times{{0, 3}, {3, 5}, {6, 8}}));
  EXPECT_DOUBLE_EQ(step.seconds, 12);
}

TEST(StepWorks, RefusesAScheduleThatWouldRaceOnQueues) {
  StepRecord record = three_units(2);
  std::swap(record.schedule[2], record.schedule[4]);  // the third gather overwrites what the first forward reads

  EXPECT_THROW(estimate_of(record, true), InputError);
  EXPECT_NO_THROW(estimate_of(record, false));
}

TEST(StepWorks, CountsBytesByLinkAndCollectivesByAxis) {
  const Estimate step = estimate_of(three_units(2), true);

  EXPECT_DOUBLE_EQ(step.bytes[static_cast<std::size_t>(Link::node)], 6e6);
  EXPECT_DOUBLE_EQ(step.busy[static_cast<std::size_t>(Link::node)], 6);
  EXPECT_EQ(step.traffic.world[comm::Op::all_gather], (comm::Calls{.calls = 3, .bytes = 12'000'000}));
}

TEST(StepWorks, AMatmulIsBoundByComputeOrMemoryBandwidth) {
  Cluster cluster = cluster_of(true);
  cluster.matmul_fp32 = 1e9;
  cluster.memory_bandwidth = 1e9;
  RecordedWork work;
  const device::MatmulRecord large{.m = 1000, .n = 1000, .k = 1000}, thin{.m = 1, .n = 1000, .k = 1000};
  add_matmul(work.matmuls, large);
  add_matmul(work.matmuls, large);
  work.counters.matmul_flops = 4'000'000'000;
  EXPECT_DOUBLE_EQ(compute_seconds(cluster, work, DType::f32), 4);
  EXPECT_EQ(work.matmuls.size(), 1u);
  work = {};
  add_matmul(work.matmuls, thin);
  work.counters.matmul_flops = 2'000'000;
  EXPECT_DOUBLE_EQ(compute_seconds(cluster, work, DType::f32), (1000 + 1'000'000 + 1000) * 4 / 1e9);
}

TEST(StepWorks, AMatmulRunsAtTheRateOfItsSmallestDimension) {
  Cluster cluster = cluster_of(true);
  cluster.memory_bandwidth = 1e15;
  cluster.matmul_fp32 = 1e9;
  cluster.matmul_fp32_medium = 5e8;
  const auto seconds = [&](const device::MatmulRecord& matmul) {
    RecordedWork work;
    add_matmul(work.matmuls, matmul);
    work.counters.matmul_flops = 2 * matmul.m * matmul.n * matmul.k;
    return compute_seconds(cluster, work, DType::f32) / static_cast<double>(work.counters.matmul_flops);
  };
  EXPECT_DOUBLE_EQ(seconds({.m = 4096, .n = 1024, .k = 2048}), 1e-9);
  EXPECT_DOUBLE_EQ(seconds({.m = 4096, .n = 1023, .k = 2048}), 2e-9);
  EXPECT_DOUBLE_EQ(seconds({.m = 4096, .n = 2048, .k = 256}), 2e-9);
  EXPECT_DOUBLE_EQ(seconds({.m = 255, .n = 2048, .k = 2048}), 1e-9) << "unknown: as large ones";
  cluster.matmul_fp32_small = 2.5e8;
  EXPECT_DOUBLE_EQ(seconds({.m = 255, .n = 2048, .k = 2048}), 4e-9);
  EXPECT_DOUBLE_EQ(cluster.matmul(DType::bf16, 100), cluster.matmul_bf16);
}

}  // namespace
}  // namespace fsdp::plan
