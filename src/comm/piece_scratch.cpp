// SPDX-License-Identifier: Apache-2.0
#include "piece_scratch.hpp"

#include <algorithm>

#include <tessera/comm/mpi_rank.hpp>

namespace fsdp::comm {
namespace {

/// Total for all pieces in flight: small enough to stay in the last-level cache.
constexpr std::int64_t largest_scratch = 4 << 20;
constexpr std::int64_t smallest_piece = 4 << 10;

}  // namespace

std::int64_t PieceScratch::bytes(int ranks) {
  if (ranks == 1) return 0;
  const std::int64_t piece =
      std::max(largest_scratch / pieces(ranks) / smallest_piece, std::int64_t{1}) * smallest_piece;
  return pieces(ranks) * piece + cache_line;
}

std::int64_t MpiRank::scratch_bytes_for(int ranks) { return PieceScratch::bytes(ranks); }

}  // namespace fsdp::comm
