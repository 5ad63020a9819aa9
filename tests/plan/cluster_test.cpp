// SPDX-License-Identifier: Apache-2.0
#include <limits>
#include <string>

#include <gtest/gtest.h>

#include <tessera/fsdp/core/error.hpp>
#include <tessera/fsdp/plan/available_memory.hpp>
#include <tessera/fsdp/plan/cluster.hpp>
#include <tessera/fsdp/plan/collective_times.hpp>
#include "support/temporary_folder.hpp"

namespace fsdp::plan {
namespace {

std::string refusal(const Cluster& cluster) {
  return test::error_of<InputError>([&] { cluster.validate(); });
}

/// The h100 cluster with one value changed.
template <class T>
std::string refusal_of(T Cluster::*value, T changed) {
  Cluster cluster = known_cluster("h100");
  cluster.*value = changed;
  return refusal(cluster);
}

TEST(Cluster, KnownOnesCanBe) {
  for (const KnownCluster& known : known_clusters()) {
    SCOPED_TRACE(known.name);
    EXPECT_EQ(refusal(known.cluster), "");
    EXPECT_EQ(known.cluster.nodes(), 1);
    EXPECT_GT(known.cluster.memory, known.cluster.runtime_bytes + known.cluster.exchange_bytes);
  }
}

TEST(Cluster, TakesAnyNumberOfRanksThatFillsNodes) {
  EXPECT_EQ(known_cluster("h100", 64).nodes(), 8);
  EXPECT_EQ(known_cluster("h100", 4).nodes(), 1);
  EXPECT_EQ(known_cluster("h100", 4).ranks_of_node(), 4);
  EXPECT_THROW(known_cluster("h100", 12), InputError);
}

TEST(Cluster, AnUnknownNameIsAnsweredWithTheNearest) {
  EXPECT_INPUT_ERROR(known_cluster("h10"), "did you mean 'h100'");
}

TEST(Cluster, RefusesWhatNoMachineHasByName) {
  test::expect_parts(refusal_of(&Cluster::network_bandwidth, 0.0), {"network_bandwidth is 0"});
  test::expect_parts(refusal_of(&Cluster::matmul_bf16, 1e30), {"matmul_bf16 is 1e+30"});
  test::expect_parts(refusal_of(&Cluster::node_latency, -1.0), {"node_latency is -1"});
  test::expect_parts(refusal_of(&Cluster::memory, std::int64_t{-5}), {"memory is -5"});
  EXPECT_NE(refusal_of(&Cluster::memory_bandwidth, std::numeric_limits<double>::quiet_NaN()), "");
  test::expect_parts(refusal_of(&Cluster::ranks, std::int64_t{12}), {"do not fill nodes of 8"});
  test::expect_parts(refusal_of(&Cluster::runtime_bytes, std::int64_t{1} << 45), {"leave nothing"});
  test::expect_parts(refusal_of(&Cluster::device, std::string("tpu")), {"device is 'tpu'"});
  test::expect_parts(refusal_of(&Cluster::peak_bf16, 1e14), {"above peak_bf16"});
  test::expect_parts(refusal_of(&Cluster::matmul_bf16_small, 1e15), {"above peak_bf16"});
  test::expect_parts(refusal_of(&Cluster::matmul_fp32_medium, -1.0), {"matmul_fp32_medium is -1"});
  EXPECT_EQ(refusal_of(&Cluster::matmul_fp32_medium, 0.0), "");
  test::expect_parts(refusal_of(&Cluster::beside_collectives, 1.2), {"beside_collectives is 1.2"});
  test::expect_parts(refusal_of(&Cluster::beside_collectives, 0.0), {"beside_collectives is 0"});
}

using test::TemporaryFolder;

TEST(AvailableMemory, IsWhatTheSystemReportsWhereNoGroupLimitsIt) {
  const TemporaryFolder root;
  root.write("proc/meminfo", "MemTotal:  9000 kB\nMemFree:   10 kB\nMemAvailable:    4000 kB\n");
  EXPECT_EQ(available_memory(root.path()), 4000 * 1024);
  root.write("proc/self/cgroup", "0::/a/b\n");
  root.write("sys/fs/cgroup/a/b/memory.max", "max\n");
  root.write("sys/fs/cgroup/a/b/memory.current", "5\n");
  EXPECT_EQ(available_memory(root.path()), 4000 * 1024);
}

TEST(AvailableMemory, IsWhatTheTightestGroupLeavesCachedFilesIncluded) {
  const TemporaryFolder root;
  root.write("proc/meminfo", "MemAvailable: 4000 kB\n");
  root.write("proc/self/cgroup", "0::/a/b\n");
  root.write("sys/fs/cgroup/a/b/memory.max", "90000\n");
  root.write("sys/fs/cgroup/a/b/memory.current", "50000\n");
  EXPECT_EQ(available_memory(root.path()), 40000);
  root.write("sys/fs/cgroup/a/b/memory.stat", "anon 7\ninactive_file 1000\nactive_file 3\n");
  EXPECT_EQ(available_memory(root.path()), 41000);
  root.write("sys/fs/cgroup/a/memory.max", "60000\n");
  root.write("sys/fs/cgroup/a/memory.current", "55000\n");
  EXPECT_EQ(available_memory(root.path()), 5000);
}

TEST(AvailableMemory, KnowsGroupsOfVersionOneAndContainersThatSeeTheirsUppermost) {
  const TemporaryFolder root;
  root.write("proc/self/cgroup", "5:cpu,memory:/outside/name\n4:pids:/x\n");
  root.write("sys/fs/cgroup/memory/memory.limit_in_bytes", "70000\n");
  root.write("sys/fs/cgroup/memory/memory.usage_in_bytes", "60000\n");
  root.write("sys/fs/cgroup/memory/memory.stat", "cache 9\ntotal_inactive_file 500\n");
  EXPECT_EQ(available_memory(root.path()), 10500);
}

TEST(AvailableMemory, IsAskedForWhereNothingTells) {
  const TemporaryFolder root;
  EXPECT_INPUT_ERROR(available_memory(root.path()), "give --memory");
  EXPECT_GT(available_memory(), 0);
}

// Times that are calculated by hand: latencies of 1 and 10 s, bandwidths of 1e6 and 5e5 bytes/s.

using comm::Op;

constexpr auto node = static_cast<std::size_t>(Link::node);
constexpr auto network = static_cast<std::size_t>(Link::network);
constexpr auto host = static_cast<std::size_t>(Link::host);
constexpr std::int64_t bytes = 8'000'000;

/// Nodes of 4 ranks.
Cluster cluster_of(std::int64_t ranks) {
  return {.ranks = ranks,
          .ranks_per_node = 4,
          .collective_latency = 0,
          .node_latency = 1,
          .node_bandwidth = 1e6,
          .network_latency = 10,
          .network_bandwidth = 5e5,
          .host_bandwidth = 2e6};
}

void expect_time(const CollectiveTime& found, double latency, double transfer) {
  EXPECT_DOUBLE_EQ(found.latency, latency);
  EXPECT_DOUBLE_EQ(found.transfer, transfer);
}

TEST(CollectiveTime, OfARingInANode) {
  for (const Op op : {Op::all_gather, Op::reduce_scatter}) {
    const CollectiveTime time = collective_time(cluster_of(4), op, bytes, {.ranks = 4});

    expect_time(time, 3, 6);  // 3 messages; 3 quarters of 8 MB at 1 MB/s
    EXPECT_DOUBLE_EQ(time.bytes[node], 6e6);
    EXPECT_DOUBLE_EQ(time.bytes[network], 0);
    EXPECT_DOUBLE_EQ(time.demand[node], 1);
  }
}

TEST(CollectiveTime, OfARingBetweenNodesIsThatOfTheSlowerLink) {
  const CollectiveTime time = collective_time(cluster_of(8), Op::all_gather, bytes, {.ranks = 8});

  expect_time(time, 6 * 1 + 1 * 10, 8);  // half of 8 MB into each node at 0.5 MB/s, beside 6 MB inside
  EXPECT_DOUBLE_EQ(time.bytes[network], 4e6);
  EXPECT_DOUBLE_EQ(time.demand[network], 1);
  EXPECT_DOUBLE_EQ(time.demand[node], 0.75);
}

TEST(CollectiveTime, InStagesHasFewerLatenciesAndBothTransfers) {
  Cluster cluster = cluster_of(8);
  cluster.gathers_in_stages = true;
  const CollectiveTime time = collective_time(cluster, Op::all_gather, bytes, {.ranks = 8});

  expect_time(time, 3 * 1 + 1 * 10, 8 + 6);
  EXPECT_DOUBLE_EQ(time.demand[network], 8.0 / 14);
}

TEST(CollectiveTime, RanksOfDifferentNodesShareTheWayIntoEach) {
  // 4 communicators of one rank of each node: each gathers 8 MB, half of it from the other node.
  const CollectiveTime time = collective_time(cluster_of(8), Op::all_gather, bytes, {.ranks = 2, .stride = 4});

  expect_time(time, 10, 4 * 4e6 / 5e5);
  EXPECT_DOUBLE_EQ(time.bytes[network], 16e6);
  EXPECT_DOUBLE_EQ(time.bytes[node], 0);
}

TEST(CollectiveTime, OfAGroupInsideOfANodeTakesNoNetwork) {
  const CollectiveTime time = collective_time(cluster_of(8), Op::all_gather, bytes, {.ranks = 2});

  expect_time(time, 1, 4);
  EXPECT_DOUBLE_EQ(time.bytes[network], 0);
}

TEST(CollectiveTime, OfAnAllReduceIsARingTwiceOrForFewBytesATree) {
  expect_time(collective_time(cluster_of(4), Op::all_reduce, bytes, {.ranks = 4}), 2 * 3, 2 * 6);
  expect_time(collective_time(cluster_of(4), Op::all_reduce, 8, {.ranks = 4}), 2 * 2, 2 * 8 / 1e6);
  expect_time(collective_time(cluster_of(8), Op::all_reduce, 8, {.ranks = 8}), 2 * (2 + 10), 2 * 8 / 5e5);
}

TEST(CollectiveTime, OfAnAllToAllIsOneLatencyAndEachRanksPart) {
  expect_time(collective_time(cluster_of(4), Op::all_to_all, bytes, {.ranks = 4}), 1, 6);
  // A rank gets 3/8 of its bytes from its node, and 4/8 from the other one; 4 ranks share the way into it.
  expect_time(collective_time(cluster_of(8), Op::all_to_all, bytes, {.ranks = 8}), 10, 4 * 4e6 / 5e5);
}

TEST(CollectiveTime, OfOneRankIsNone) {
  for (const Op op : comm::all_ops) EXPECT_EQ(collective_time(cluster_of(4), op, bytes, {.ranks = 1}).seconds(), 0);
}

TEST(CollectiveTime, EveryOneHasItsStart) {
  Cluster cluster = cluster_of(4);
  cluster.collective_latency = 100;
  for (const Op op : comm::all_ops) {
    EXPECT_GE(collective_time(cluster, op, 0, {.ranks = 4}).latency, 100);
    EXPECT_EQ(collective_time(cluster, op, 0, {.ranks = 4}).transfer, 0);
  }
}

TEST(CollectiveTime, OfACopyToTheHost) {
  const CollectiveTime time = host_copy_time(cluster_of(4), bytes);

  expect_time(time, 0, 4);
  EXPECT_DOUBLE_EQ(time.demand[host], 1);
  EXPECT_DOUBLE_EQ(time.bytes[host], 8e6);
}

TEST(CollectiveTime, RefusesImpossibleArguments) {
  EXPECT_THROW(collective_time(cluster_of(4), Op::all_gather, -1, {.ranks = 4}), LogicError);
}

}  // namespace
}  // namespace fsdp::plan
