// SPDX-License-Identifier: Apache-2.0
/// @file
/// The memory through which MPI's ranks add up pieces (mpi_sum.hpp): plans of such ranks ask for it without MPI.
#pragma once

#include <cstdint>

namespace fsdp::comm {

/// Sizes of a rank's scratch: two pieces per peer and direction, and room to align them.
struct PieceScratch {
  static constexpr std::int64_t slots = 2;
  static constexpr std::int64_t cache_line = 64;

  /// Pieces that are in flight between a rank and the others.
  static constexpr std::int64_t pieces(std::int64_t ranks) { return 2 * slots * (ranks - 1); }
  /// Bytes of all of them. One rank needs none.
  static std::int64_t bytes(int ranks);
};

}  // namespace fsdp::comm
