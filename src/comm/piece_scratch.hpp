// SPDX-License-Identifier: Apache-2.0
/// @file
/// The scratch memory in which MPI's ranks sum pieces (mpi_sum.hpp). It is separate, so that plans for such ranks can
/// compute its size without MPI.
#pragma once

#include <cstdint>

namespace fsdp::comm {

/// Sizes of a rank's scratch: two pieces per peer and direction, and room to align them.
struct PieceScratch {
  static constexpr std::int64_t slots = 2;
  static constexpr std::int64_t cache_line = 64;

  /// Returns the number of pieces in flight between a rank and the others.
  static constexpr std::int64_t pieces(std::int64_t ranks) { return 2 * slots * (ranks - 1); }
  /// Returns the bytes of all pieces; 0 for one rank.
  static std::int64_t bytes(int ranks);
};

}  // namespace fsdp::comm
