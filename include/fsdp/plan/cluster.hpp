// SPDX-License-Identifier: Apache-2.0
/// @file
/// The machines that a run is planned for: their ranks, memory, rates and links.
///
/// All rates are those that programs reach, not those of data sheets, except for `peak`, which MFU divides by. A
/// program fills the struct itself, takes a known one by name, or reads a file
/// (tessera/trainer/flags/cluster_file.hpp). To add a known one: an entry in src/fsdp/plan/known_clusters.cpp with the
/// source of every number.
#pragma once

#include <algorithm>
#include <cstdint>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include <tessera/fsdp/core/dtype.hpp>

namespace fsdp::plan {

/// Equal nodes, each with as many ranks, and the links between them. Rates are per second, sizes in bytes.
struct Cluster {
  std::string device = "";              ///< what a rank computes on: "cuda" or "cpu"
  std::int64_t ranks = 0;               ///< in all
  std::int64_t ranks_per_node = 0;      ///< divides `ranks`, or is more and one node has them all
  std::int64_t memory = 0;              ///< of a rank's device; on a CPU its part of the node's
  std::int64_t threads = 1;             ///< of a rank: the cores that it has
  std::int64_t host_memory = 0;         ///< of a node, for what is offloaded
  std::int64_t runtime_bytes = 0;       ///< that a rank's runtime takes of `memory` besides tensors
  std::int64_t exchange_bytes = 0;      ///< that it takes on top of that where ranks call all_to_all
  double peak_bf16 = 0, peak_fp32 = 0;  ///< FLOP/s of a rank that MFU divides by
  /// FLOP/s of a rank's matmuls by the smallest of m, n and k: at least 1024; 256 to 1023; less. The smaller ones are
  /// 0 where nobody knows them, and are then as fast as large ones.
  /// @{
  double matmul_bf16 = 0, matmul_bf16_medium = 0, matmul_bf16_small = 0;
  double matmul_fp32 = 0, matmul_fp32_medium = 0, matmul_fp32_small = 0;
  /// @}
  double attention = 0;           ///< FLOP/s of a rank's attention kernels in bf16
  double memory_bandwidth = 0;    ///< of a rank's device, read and written, while all ranks of its node use theirs
  double collective_latency = 0;  ///< seconds to start a collective
  double node_latency = 0;        ///< seconds of a message between ranks of a node
  double node_bandwidth = 0;      ///< into a rank from the others of its node, while all do so
  double network_latency = 0;     ///< seconds of a message between nodes
  double network_bandwidth = 0;   ///< into a node, shared by its ranks
  double host_bandwidth = 0;      ///< between a rank's device and its host's memory, each way, while all do so
  bool collectives_have_queues = false;  ///< false: a collective takes the rank's own time, as on a CPU
  double beside_collectives = 1;   ///< how fast a rank computes while collectives move bytes beside it, 1: as alone
  bool gathers_in_stages = false;  ///< all-gathers and reduce-scatters go between nodes first; false: one ring

  /// Calls visitor(name, value, help) for each value of `self`; the names are those of a file's keys.
  template <class Self, class Visitor>
  static constexpr void visit(Self& self, Visitor&& visitor) {
    visitor("device", self.device, "cuda | cpu: what a rank computes on");
    visitor("ranks", self.ranks, "ranks in all");
    visitor("ranks_per_node", self.ranks_per_node, "ranks of a node");
    visitor("threads", self.threads, "threads of a rank: the cores that it has");
    visitor("memory", self.memory, "bytes of a rank's device");
    visitor("host_memory", self.host_memory, "bytes of a node's host memory");
    visitor("runtime_bytes", self.runtime_bytes, "bytes that a rank's runtime takes besides tensors");
    visitor("exchange_bytes", self.exchange_bytes, "bytes that it takes on top where ranks call all_to_all");
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
    visitor("attention", self.attention, "FLOP/s of attention in bf16");
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

  /// Whether a rank's memory is its host's.
  bool on_host() const { return device == "cpu"; }
  /// Bytes of a rank's memory that its runtime takes besides tensors. `exchanges`: whether ranks call all_to_all.
  std::int64_t runtime(bool exchanges) const { return runtime_bytes + (exchanges ? exchange_bytes : 0); }
  /// Nodes that the ranks fill.
  std::int64_t nodes() const { return ranks <= ranks_per_node ? 1 : ranks / ranks_per_node; }
  /// Ranks of a node that take part.
  std::int64_t ranks_of_node() const { return ranks / nodes(); }
  /// The rate of matmuls of a type whose smallest size is so large, and the rate that MFU divides by; 16-bit types have
  /// bf16's.
  /// @{
  double matmul(DType type, std::int64_t smallest = least_large) const;
  double peak(DType type) const { return type == DType::f32 ? peak_fp32 : peak_bf16; }
  /// @}
  /// The rate of attention in a type: in fp32 bf16's, but at most that of matmuls.
  double attention_rate(DType type) const { return type == DType::f32 ? std::min(attention, matmul_fp32) : attention; }
  static constexpr std::int64_t least_large = 1024, least_medium = 256;  ///< smallest sizes of matmuls, by class
  /// Throws InputError with one sentence about the first value that cannot be: "network_bandwidth is 0; give ...".
  void validate() const;
  friend bool operator==(const Cluster&, const Cluster&) = default;
};

/// A cluster that is known by name.
struct KnownCluster {
  std::string_view name;
  std::string_view help;  ///< what it is, in a few words
  Cluster cluster;
};

/// Returns all known clusters.
std::span<const KnownCluster> known_clusters();
/// Returns their names.
std::vector<std::string> known_cluster_names();
/// Returns a known cluster, with so many ranks in place of its own unless `ranks` is 0. Throws InputError, which
/// suggests the nearest name, if there is none of this one; or if so many ranks do not fill its nodes.
Cluster known_cluster(std::string_view name, std::int64_t ranks = 0);

/// Returns the first known cluster of a device ("cuda" or "cpu"), whose runtime stands for that of machines without a
/// file of figures; an empty cluster for any other device.
Cluster usual_cluster(std::string_view device);

}  // namespace fsdp::plan
