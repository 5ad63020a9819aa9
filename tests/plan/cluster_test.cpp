// SPDX-License-Identifier: Apache-2.0
#include <limits>
#include <string>

#include <gtest/gtest.h>

#include <support/errors.hpp>
#include <tessera/fsdp/core/error.hpp>
#include <tessera/fsdp/plan/cluster.hpp>

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

TEST(Cluster, KnownClustersAreValid) {
  for (const KnownCluster& known : known_clusters()) {
    SCOPED_TRACE(known.name);
    EXPECT_EQ(refusal(known.cluster), "");
    EXPECT_EQ(known.cluster.nodes(), 1);
    EXPECT_GT(known.cluster.memory, known.cluster.runtime_bytes + known.cluster.exchange_bytes);
  }
}

TEST(Cluster, AcceptsAnyNumberOfRanksThatFillsNodes) {
  EXPECT_EQ(known_cluster("h100", 64).nodes(), 8);
  EXPECT_EQ(known_cluster("h100", 4).nodes(), 1);
  EXPECT_EQ(known_cluster("h100", 4).ranks_of_node(), 4);
  EXPECT_THROW(known_cluster("h100", 12), InputError);
}

TEST(Cluster, AnUnknownNameIsAnErrorThatSuggestsTheNearest) {
  EXPECT_INPUT_ERROR(known_cluster("h10"), "did you mean 'h100'");
}

TEST(Cluster, ReportsTheFieldOfAnImpossibleValue) {
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
  test::expect_parts(refusal_of(&Cluster::attention_own, 1e15), {"above peak_bf16"});
  test::expect_parts(refusal_of(&Cluster::matmul_fp32_medium, -1.0), {"matmul_fp32_medium is -1"});
  EXPECT_EQ(refusal_of(&Cluster::matmul_fp32_medium, 0.0), "");
  test::expect_parts(refusal_of(&Cluster::beside_collectives, 1.2), {"beside_collectives is 1.2"});
  test::expect_parts(refusal_of(&Cluster::beside_collectives, 0.0), {"beside_collectives is 0"});
}

}  // namespace
}  // namespace fsdp::plan
