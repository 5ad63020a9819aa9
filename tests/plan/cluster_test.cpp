// SPDX-License-Identifier: Apache-2.0
#include <tessera/fsdp/plan/cluster.hpp>

#include <limits>
#include <string>

#include <gtest/gtest.h>

#include <tessera/fsdp/core/error.hpp>

namespace fsdp::plan {
namespace {

std::string refusal(const Cluster& cluster) {
  try {
    cluster.validate();
  } catch (const InputError& error) {
    return error.what();
  }
  return "";
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
  try {
    known_cluster("h10");
    FAIL();
  } catch (const InputError& error) {
    EXPECT_NE(std::string(error.what()).find("did you mean 'h100'"), std::string::npos) << error.what();
  }
}

TEST(Cluster, RefusesWhatNoMachineHasByName) {
  EXPECT_NE(refusal_of(&Cluster::network_bandwidth, 0.0).find("network_bandwidth is 0"), std::string::npos);
  EXPECT_NE(refusal_of(&Cluster::matmul_bf16, 1e30).find("matmul_bf16 is 1e+30"), std::string::npos);
  EXPECT_NE(refusal_of(&Cluster::node_latency, -1.0).find("node_latency is -1"), std::string::npos);
  EXPECT_NE(refusal_of(&Cluster::memory, std::int64_t{-5}).find("memory is -5"), std::string::npos);
  EXPECT_NE(refusal_of(&Cluster::memory_bandwidth, std::numeric_limits<double>::quiet_NaN()), "");
  EXPECT_NE(refusal_of(&Cluster::ranks, std::int64_t{12}).find("do not fill nodes of 8"), std::string::npos);
  EXPECT_NE(refusal_of(&Cluster::runtime_bytes, std::int64_t{1} << 45).find("leave nothing"), std::string::npos);
  EXPECT_NE(refusal_of(&Cluster::device, std::string("tpu")).find("device is 'tpu'"), std::string::npos);
  EXPECT_NE(refusal_of(&Cluster::peak_bf16, 1e14).find("above peak_bf16"), std::string::npos);
  EXPECT_NE(refusal_of(&Cluster::matmul_bf16_small, 1e15).find("above peak_bf16"), std::string::npos);
  EXPECT_NE(refusal_of(&Cluster::matmul_fp32_medium, -1.0).find("matmul_fp32_medium is -1"), std::string::npos);
  EXPECT_EQ(refusal_of(&Cluster::matmul_fp32_medium, 0.0), "");
  EXPECT_NE(refusal_of(&Cluster::beside_collectives, 1.2).find("beside_collectives is 1.2"), std::string::npos);
  EXPECT_NE(refusal_of(&Cluster::beside_collectives, 0.0).find("beside_collectives is 0"), std::string::npos);
}

}  // namespace
}  // namespace fsdp::plan
