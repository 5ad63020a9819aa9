// SPDX-License-Identifier: Apache-2.0
// Compares with times calculated by hand: latencies of 1 s and 10 s, bandwidths of 1e6 and 5e5 bytes/s.
#include <tessera/fsdp/plan/cluster.hpp>

#include <gtest/gtest.h>

#include <tessera/comm/monitor.hpp>
#include <tessera/fsdp/core/error.hpp>

namespace fsdp::plan {
namespace {

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

TEST(CollectiveTime, RingWithinANodeIsLatencyPlusTransferPerHop) {
  for (const Op op : {Op::all_gather, Op::reduce_scatter}) {
    const CollectiveTime time = collective_time(cluster_of(4), op, bytes, {.ranks = 4});

    expect_time(time, 3, 6);  // 3 messages; 3 quarters of 8 MB at 1 MB/s
    EXPECT_DOUBLE_EQ(time.bytes[node], 6e6);
    EXPECT_DOUBLE_EQ(time.bytes[network], 0);
    EXPECT_DOUBLE_EQ(time.demand[node], 1);
  }
}

TEST(CollectiveTime, RingBetweenNodesIsBoundByTheSlowerLink) {
  const CollectiveTime time = collective_time(cluster_of(8), Op::all_gather, bytes, {.ranks = 8});

  expect_time(time, 6 * 1 + 1 * 10, 8);  // half of 8 MB into each node at 0.5 MB/s, overlapped with 6 MB inside
  EXPECT_DOUBLE_EQ(time.bytes[network], 4e6);
  EXPECT_DOUBLE_EQ(time.demand[network], 1);
  EXPECT_DOUBLE_EQ(time.demand[node], 0.75);
}

TEST(CollectiveTime, HierarchicalGatherHasFewerLatenciesAndBothTransfers) {
  Cluster cluster = cluster_of(8);
  cluster.gathers_in_stages = true;
  const CollectiveTime time = collective_time(cluster, Op::all_gather, bytes, {.ranks = 8});

  expect_time(time, 3 * 1 + 1 * 10, 8 + 6);
  EXPECT_DOUBLE_EQ(time.demand[network], 8.0 / 14);
}

TEST(CollectiveTime, RanksOnDifferentNodesShareTheLinkIntoEachNode) {
  // 4 communicators with one rank on each node: each gathers 8 MB, half of it from the other node.
  const CollectiveTime time = collective_time(cluster_of(8), Op::all_gather, bytes, {.ranks = 2, .stride = 4});

  expect_time(time, 10, 4 * 4e6 / 5e5);
  EXPECT_DOUBLE_EQ(time.bytes[network], 16e6);
  EXPECT_DOUBLE_EQ(time.bytes[node], 0);
}

TEST(CollectiveTime, AGroupWithinANodeUsesNoNetwork) {
  const CollectiveTime time = collective_time(cluster_of(8), Op::all_gather, bytes, {.ranks = 2});

  expect_time(time, 1, 4);
  EXPECT_DOUBLE_EQ(time.bytes[network], 0);
}

TEST(CollectiveTime, AllReduceIsTwoRingsOrATreeForFewBytes) {
  expect_time(collective_time(cluster_of(4), Op::all_reduce, bytes, {.ranks = 4}), 2 * 3, 2 * 6);
  expect_time(collective_time(cluster_of(4), Op::all_reduce, 8, {.ranks = 4}), 2 * 2, 2 * 8 / 1e6);
  expect_time(collective_time(cluster_of(8), Op::all_reduce, 8, {.ranks = 8}), 2 * (2 + 10), 2 * 8 / 5e5);
}

TEST(CollectiveTime, AllToAllIsOneLatencyPlusThePartOfEachRank) {
  expect_time(collective_time(cluster_of(4), Op::all_to_all, bytes, {.ranks = 4}), 1, 6);
  // A rank receives 3/8 of its bytes from its own node and 4/8 from the other one; 4 ranks share the link into a node.
  expect_time(collective_time(cluster_of(8), Op::all_to_all, bytes, {.ranks = 8}), 10, 4 * 4e6 / 5e5);
}

TEST(CollectiveTime, IsZeroForOneRank) {
  for (const Op op : comm::all_ops) EXPECT_EQ(collective_time(cluster_of(4), op, bytes, {.ranks = 1}).seconds(), 0);
}

TEST(CollectiveTime, EveryCollectiveHasALaunchLatency) {
  Cluster cluster = cluster_of(4);
  cluster.collective_latency = 100;
  for (const Op op : comm::all_ops) {
    EXPECT_GE(collective_time(cluster, op, 0, {.ranks = 4}).latency, 100);
    EXPECT_EQ(collective_time(cluster, op, 0, {.ranks = 4}).transfer, 0);
  }
}

TEST(CollectiveTime, ACopyToTheHostUsesTheHostLink) {
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
