// SPDX-License-Identifier: Apache-2.0
/// @file
/// The result of a calibration, and the cluster file that is written from it.
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "rounds.hpp"

namespace fsdp::calibrate {

/// A case of the rounds, with the FLOPs or bytes of one run.
struct Timed {
  std::size_t at = 0;
  double amount = 0;
};

/// The cases of the collectives over one kind of link.
struct LinkCases {
  int ranks = 1;  ///< number of ranks of a communicator
  std::size_t few = 0, gather = 0, scatter = 0;
  int calls_of_few = 1, calls_of_many = 1;  ///< number of calls in one case
  double bytes = 0;                         ///< bytes of the whole buffer in one call of gather and of scatter
};

/// The placement of ranks on nodes: the same number on each node, numbered node by node, as plans assume.
struct Places {
  int nodes = 1;
  int per_node = 1;
};
/// Memory of a rank in bytes, the same on all ranks.
struct MeasuredMemory {
  std::int64_t memory = 0;          ///< memory of its device
  std::int64_t runtime_bytes = 0;   ///< bytes in use in addition to tensors
  std::int64_t exchange_bytes = 0;  ///< further bytes in use if ranks call all_to_all
};

/// All measurements, with the seconds of the slowest rank.
struct Calibration {
  const Rounds& rounds;
  std::int64_t repeats;
  std::string_view device;
  bool queues;  ///< whether collectives have separate queues
  Places places;
  int threads;
  std::array<Timed, 3> matmul_bf16, matmul_fp32;  ///< rates of large, medium and small matmuls
  Timed attention, operations, copies;
  /// Collectives within a node and between nodes, if there are several ranks or nodes.
  std::optional<LinkCases> node, network;
  /// Relative speed of matmuls during gathers, by round; empty if not measured.
  std::vector<double> beside_collectives = {};
  MeasuredMemory memory = {};
};

/// Returns the cluster as a TOML file that `--cluster` reads, with the spread of each figure in a comment.
std::string cluster_file(const Calibration& measured);

}  // namespace fsdp::calibrate
