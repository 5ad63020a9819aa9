// SPDX-License-Identifier: Apache-2.0
/// @file
/// The machines that a run is planned for: their ranks, memory, rates and links; and the duration of a collective that
/// runs alone, by latency-bandwidth models of the algorithms in use, and its demand on links.
///
/// All rates are achieved rates, not those of data sheets, except for `peak`, the denominator of MFU. A program fills
/// the struct itself, takes a known cluster by name, or reads a file (tessera/trainer/flags/flag_values.hpp). To add a
/// known cluster: an entry in src/fsdp/plan/known_clusters.cpp with the source of every number.
///
/// Of collectives, B: bytes of the whole buffer, n: ranks, m: nodes, g = n / m: ranks per node. A message takes
/// `latency` plus the time of its bytes at the link's bandwidth. If an algorithm uses both kinds of links at once, the
/// slower link determines the time. Not here: several collectives that share a link (step_works.hpp). Source: Thakur,
/// Rabenseifner and Gropp, Optimization of Collective Communication Operations in MPICH, 2005.
#pragma once

#include <algorithm>
#include <array>
#include <cstddef>
#include <cstdint>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include <tessera/fsdp/core/dtype.hpp>

namespace fsdp::comm {
enum class Op : std::uint8_t;  // tessera/comm/monitor.hpp
}  // namespace fsdp::comm

namespace fsdp::plan {

struct UsedCommunicators;  // tessera/fsdp/plan/plan.hpp

/// Equal nodes with the same number of ranks each, and the links between them. Rates are per second, sizes in bytes.
struct Cluster {
  std::string device = "";              ///< device of a rank: "cuda" or "cpu"
  std::int64_t ranks = 0;               ///< total number of ranks
  std::int64_t ranks_per_node = 0;      ///< divides `ranks`; or is larger, and one node has all ranks
  std::int64_t memory = 0;              ///< memory of a rank's device; on a CPU its share of the node's memory
  std::int64_t threads = 1;             ///< number of cores of a rank
  std::int64_t host_memory = 0;         ///< host memory of a node, for offloading
  std::int64_t runtime_bytes = 0;       ///< bytes of `memory` that a rank's runtime uses in addition to tensors
  std::int64_t communicator_bytes = 0;  ///< further bytes of each communicator but the first
  std::int64_t exchange_bytes = 0;      ///< further bytes of each communicator whose ranks send to each other
  double peak_bf16 = 0, peak_fp32 = 0;  ///< peak FLOP/s of a rank, the denominator of MFU
  /// FLOP/s of a rank's matmuls by the smallest of m, n and k: at least 1024; 256 to 1023; less than 256. The rates of
  /// smaller matmuls are 0 if unknown; these are then as fast as large ones.
  /// @{
  double matmul_bf16 = 0, matmul_bf16_medium = 0, matmul_bf16_small = 0;
  double matmul_fp32 = 0, matmul_fp32_medium = 0, matmul_fp32_small = 0;
  /// @}
  double attention = 0;      ///< FLOP/s of a rank's attention kernels in bf16; on GPUs of cuDNN's
  double attention_own = 0;  ///< FLOP/s in bf16 of attention that cuDNN does not compute; 0: as `attention`
  /// Read and write bandwidth of a rank's device, while all ranks of its node use theirs.
  double memory_bandwidth = 0;
  double collective_latency = 0;  ///< seconds to start a collective
  double node_latency = 0;        ///< seconds per message between ranks of a node
  double node_bandwidth = 0;      ///< bandwidth into a rank from the other ranks of its node, while all ranks receive
  double network_latency = 0;     ///< seconds per message between nodes
  double network_bandwidth = 0;   ///< bandwidth into a node, shared by its ranks
  /// Bandwidth between a rank's device and its host's memory in each direction, while all ranks copy.
  double host_bandwidth = 0;
  /// Whether collectives run in separate queues; false: a collective blocks the rank's computation, as on a CPU.
  bool collectives_have_queues = false;
  /// Relative speed of a rank's computation while collectives transfer data; 1: as fast as alone.
  double beside_collectives = 1;
  /// All-gathers and reduce-scatters run between nodes first, then within nodes; false: one ring.
  bool gathers_in_stages = false;

  /// Calls visitor(name, value, help) for each value of `self`; the names are the keys of a cluster file.
  template <class Self, class Visitor>
  static constexpr void visit(Self& self, Visitor&& visitor) {
    visitor("device", self.device, "cuda | cpu: what a rank computes on");
    visitor("ranks", self.ranks, "ranks in all");
    visitor("ranks_per_node", self.ranks_per_node, "ranks of a node");
    visitor("threads", self.threads, "threads of a rank: the cores that it has");
    visitor("memory", self.memory, "bytes of a rank's device");
    visitor("host_memory", self.host_memory, "bytes of a node's host memory");
    visitor("runtime_bytes", self.runtime_bytes, "bytes that a rank's runtime takes besides tensors");
    visitor("communicator_bytes", self.communicator_bytes, "bytes that each communicator but the first takes");
    visitor("exchange_bytes", self.exchange_bytes, "bytes that each takes on top whose ranks send to each other");
    visitor("peak_bf16", self.peak_bf16, "FLOP/s in bf16 that MFU divides by");
    visitor("peak_fp32", self.peak_fp32, "FLOP/s in fp32 that MFU divides by");
    visitor("matmul_bf16", self.matmul_bf16, "FLOP/s in bf16 of matmuls whose smallest size is at least 1024");
    visitor("matmul_bf16_medium", self.matmul_bf16_medium,
            "FLOP/s in bf16 of matmuls whose smallest size is 256 to 1023; 0: as large ones");
    visitor("matmul_bf16_small", self.matmul_bf16_small,
            "FLOP/s in bf16 of matmuls whose smallest size is below 256; 0: as large ones");
    visitor("matmul_fp32", self.matmul_fp32, "FLOP/s in fp32 of matmuls whose smallest size is at least 1024");
    visitor("matmul_fp32_medium", self.matmul_fp32_medium,
            "FLOP/s in fp32 of matmuls whose smallest size is 256 to 1023; 0: as large ones");
    visitor("matmul_fp32_small", self.matmul_fp32_small,
            "FLOP/s in fp32 of matmuls whose smallest size is below 256; 0: as large ones");
    visitor("attention", self.attention, "FLOP/s of attention in bf16, on GPUs of cuDNN's");
    visitor("attention_own", self.attention_own,
            "FLOP/s in bf16 of attention that cuDNN does not compute; 0: as attention");
    visitor("memory_bandwidth", self.memory_bandwidth, "bytes/s of a rank's device memory");
    visitor("collective_latency", self.collective_latency, "seconds to start a collective");
    visitor("node_latency", self.node_latency, "seconds of a message between ranks of a node");
    visitor("node_bandwidth", self.node_bandwidth, "bytes/s into a rank from the others of its node");
    visitor("network_latency", self.network_latency, "seconds of a message between nodes");
    visitor("network_bandwidth", self.network_bandwidth, "bytes/s into a node, shared by its ranks");
    visitor("host_bandwidth", self.host_bandwidth, "bytes/s between a rank's device and its host, each way");
    visitor("collectives_have_queues", self.collectives_have_queues, "whether collectives run beside computation");
    visitor("beside_collectives", self.beside_collectives, "how fast a rank computes beside collectives; 1: as alone");
    visitor("gathers_in_stages", self.gathers_in_stages, "whether gathers go between nodes first, then inside");
  }

  /// Returns whether a rank's memory is host memory.
  bool on_host() const { return device == "cpu"; }
  /// Returns the bytes of a rank's memory that its runtime uses in addition to tensors.
  std::int64_t runtime(const UsedCommunicators& used) const;
  /// Returns the number of nodes that the ranks fill.
  std::int64_t nodes() const { return ranks <= ranks_per_node ? 1 : ranks / ranks_per_node; }
  /// Returns the number of ranks on each node.
  std::int64_t ranks_of_node() const { return ranks / nodes(); }
  /// Return the rate of matmuls of a type whose smallest of m, n and k is `smallest`, and the peak rate for MFU. 16-bit
  /// types have the rates of bf16.
  /// @{
  double matmul(DType type, std::int64_t smallest = least_large) const;
  double peak(DType type) const { return type == DType::f32 ? peak_fp32 : peak_bf16; }
  /// @}
  /// Returns the rate of attention in a type; for fp32 the rate in bf16, but at most the rate of matmuls. `own`: of
  /// attention that cuDNN does not compute.
  double attention_rate(DType type, bool own = false) const {
    const double rate = own && attention_own > 0 ? attention_own : attention;
    return type == DType::f32 ? std::min(rate, matmul_fp32) : rate;
  }
  /// Lower bounds on the smallest of m, n and k, by class.
  static constexpr std::int64_t least_large = 1024, least_medium = 256;
  /// Throws InputError with one sentence about the first invalid value: "network_bandwidth is 0; give ...".
  void validate() const;
  friend bool operator==(const Cluster&, const Cluster&) = default;
};

/// A cluster that is known by name.
struct KnownCluster {
  std::string_view name;
  std::string_view help;  ///< a short description
  Cluster cluster;
};

/// Returns all known clusters.
std::span<const KnownCluster> known_clusters();
/// Returns the names of the known clusters.
std::vector<std::string> known_cluster_names();
/// Returns a known cluster, with `ranks` in place of its own number of ranks unless `ranks` is 0. Throws InputError,
/// which suggests the nearest name, if the name is unknown; also if this number of ranks does not fill the cluster's
/// nodes.
Cluster known_cluster(std::string_view name, std::int64_t ranks = 0);

/// Returns the first known cluster of a device ("cuda" or "cpu"); its runtime memory is assumed for machines without a
/// cluster file. Returns an empty cluster for any other device.
Cluster usual_cluster(std::string_view device);

/// The links that ranks share. `node`: into a rank from its node; `network`: into a node; `host`: between a rank's
/// device and its host.
enum class Link : std::uint8_t { node, network, host };
inline constexpr std::size_t link_count = 3;  ///< number of values of Link
/// Returns the name in tables and JSON: "node".
std::string_view name_of(Link link);

/// One number per link.
using ByLink = std::array<double, link_count>;

/// The members of a communicator: a rank, the rank plus `stride`, the rank plus 2 `stride`, ...
struct Members {
  std::int64_t ranks = 1;
  /// Distance between two members; all ranks form such communicators, which run at the same time.
  std::int64_t stride = 1;

  friend constexpr bool operator==(const Members&, const Members&) = default;
};

/// The distribution of a communicator's members over the nodes of a cluster.
struct Spread {
  std::int64_t nodes = 1;     ///< m: number of nodes of one communicator
  std::int64_t per_node = 1;  ///< g: number of its members per node
  std::int64_t beside = 1;    ///< number of such communicators in a node, which share the node's network link
};
/// Returns the distribution of members. If they do not fill nodes evenly, the number per node is the largest one that
/// divides both their number and the places in a node.
Spread spread_of(const Cluster& cluster, const Members& members);

/// The cost of a collective on idle links.
struct CollectiveTime {
  double latency = 0;   ///< seconds during which no link is busy
  double transfer = 0;  ///< seconds of the transfer on the slowest link
  /// `node`: bytes into one rank; `network`: bytes into a whole node, for all communicators of its ranks.
  ByLink bytes = {};
  ByLink demand = {};  ///< fraction of each link's bandwidth that the transfer uses, 0 to 1

  /// Returns the total seconds on idle links.
  double seconds() const { return latency + transfer; }
};

/// Returns the time of a collective on `bytes` of a whole buffer, counted as in comm::Record; zero on one rank.
///
/// all_gather, reduce_scatter: one ring with (n-m) node latencies and (m-1) network latencies. It transfers B (g-1) / g
/// within nodes and, at the same time, B (m-1) / m between nodes. With Cluster::gathers_in_stages: between nodes first
/// and then within, with (g-1) and (m-1) latencies and both transfers one after the other. all_reduce: the faster of
/// twice that, and a tree up and down, with 2 (log2 g + log2 m) latencies and 2 B on each link. all_to_all of B
/// received bytes: one latency, B (g-1) / n within a node, and B (n-g) / n per rank between nodes. reduce,
/// gather_bytes: a tree up and down. broadcast, barrier: a tree in one direction. The last four transfer few bytes.
CollectiveTime collective_time(const Cluster& cluster, comm::Op op, std::int64_t bytes, const Members& members);

/// Returns the time of a copy between a rank's device and its host's memory, one way.
CollectiveTime host_copy_time(const Cluster& cluster, std::int64_t bytes);

}  // namespace fsdp::plan
