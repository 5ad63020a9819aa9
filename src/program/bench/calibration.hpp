// SPDX-License-Identifier: Apache-2.0
/// @file
/// What a calibration measured, and the cluster's file of it.
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "link_works.hpp"
#include "places.hpp"
#include "rounds.hpp"

namespace fsdp::bench {

/// A case of the rounds, and the FLOPs or bytes of one of its runs.
struct Timed {
  std::size_t at = 0;
  double amount = 0;
};

/// Bytes of a rank, the same on all.
struct MeasuredMemory {
  std::int64_t memory = 0;          ///< of its device
  std::int64_t runtime_bytes = 0;   ///< that are taken besides tensors
  std::int64_t exchange_bytes = 0;  ///< on top, where ranks call all_to_all
};

/// All that was measured, with the seconds of the slowest rank.
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
  MeasuredMemory memory;
};

/// Returns the cluster as a TOML file that `--cluster` reads, with the spread of each figure behind it.
std::string cluster_file(const Calibration& measured);
/// Writes it to a file and prints its name, or prints it all where `path` is empty or cannot be written, which also
/// throws InputError.
void write_cluster(const std::string& path, const std::string& text);

}  // namespace fsdp::bench
