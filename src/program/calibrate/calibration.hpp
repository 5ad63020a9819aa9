// SPDX-License-Identifier: Apache-2.0
/// @file
/// The result of a calibration, and the cluster file that is made of it.
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

/// A case of the rounds, and the FLOPs or bytes of one of its runs.
struct Timed {
  std::size_t at = 0;
  double amount = 0;
};

/// Cases of the collectives of one kind of link.
struct LinkCases {
  int ranks = 1;  ///< of a communicator
  std::size_t few = 0, gather = 0, scatter = 0;
  int calls_of_few = 1, calls_of_many = 1;  ///< in one case
  double bytes = 0;                         ///< of one call of gather, and of scatter: a whole buffer
};

/// How ranks lie in nodes: equally many in each, node by node, as plans have them.
struct Places {
  int nodes = 1;
  int per_node = 1;
};
/// Bytes of a rank, the same on all.
struct MeasuredMemory {
  std::int64_t memory = 0;          ///< of its device
  std::int64_t runtime_bytes = 0;   ///< that are taken besides tensors
  std::int64_t exchange_bytes = 0;  ///< on top, where ranks call all_to_all
};

/// All measurements, with the seconds of the slowest rank.
struct Calibration {
  const Rounds& rounds;
  std::int64_t repeats;
  std::string_view device;
  bool queues;  ///< whether collectives have queues of their own
  Places places;
  int threads;
  std::array<Timed, 3> matmul_bf16, matmul_fp32;  ///< large, medium, small
  Timed attention, operations, copies;
  std::optional<LinkCases> node, network;       ///< where a node has several ranks, or there are several nodes
  std::vector<double> beside_collectives = {};  ///< by round: speed of matmuls beside gathers; empty: not measured
  MeasuredMemory memory = {};
};

/// Returns the cluster as a TOML file that `--cluster` reads, with the spread of each figure behind it.
std::string cluster_file(const Calibration& measured);

}  // namespace fsdp::calibrate
