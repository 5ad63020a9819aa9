// SPDX-License-Identifier: Apache-2.0
/// @file
/// Code shared by the kernels of RMS norm: rows of heads, and teams of threads that keep a row in registers.
#pragma once

#include <algorithm>
#include <cstdint>

#include "kernel.cuh"

namespace fsdp::device::cuda {

struct NormSizes {
  std::int64_t tokens;  ///< number of rows of the matrix
  std::int64_t rows;    ///< number of rows of all heads together
  Cut cut;              ///< division of one head's row into vectors
};

/// A row of one head. Rows are numbered head by head: all rows of the first head, then those of the next.
struct HeadRow {
  std::int64_t token, column;

  FSDP_BOTH HeadRow(const NormSizes& sizes, std::int64_t index) : token(index), column(0) {
    if (index < sizes.tokens || sizes.tokens == 0) return;  // avoids the division if there is one head
    const std::int64_t head = index / sizes.tokens;
    token = index - head * sizes.tokens;
    column = head * sizes.cut.columns;
  }
  /// Advances to the row that comes `count` rows later.
  FSDP_BOTH void advance(const NormSizes& sizes, std::int64_t count) {
    for (token += count; token >= sizes.tokens; token -= sizes.tokens) column += sizes.cut.columns;
  }
  template <class T>
  __device__ __forceinline__ T* of(const Rows<T>& matrix) const {
    return matrix.row(token) + column;
  }
};

/// Returns the addresses at which heads begin, for cut_for_vectors; with one head, the same as the rows.
template <class T>
Access head_access(const Tensor<T>& x, std::int64_t width) {
  return {.data = x.data(), .element_bytes = sizeof(T), .row_stride = x.columns() == width ? 0 : width};
}

/// Teams of threads, each of which processes one row at a time: a thread keeps every `threads`-th vector of the row in
/// registers. The order of summation depends only on these numbers, which depend only on the row's length.
struct Teams {
  std::int32_t vectors = 0;  ///< number of vectors of a row
  std::int32_t threads = 0;  ///< number of threads of a team: a power of two up to a warp, or whole warps
  std::int32_t count = 0;    ///< number of teams per block; 0: rows are too long to be kept in registers

  std::uint32_t block() const { return static_cast<std::uint32_t>(threads * count); }
  /// Returns whether, if each thread has registers for `kept` vectors, at most an eighth of them are unused.
  bool are_full(int kept) const { return std::int64_t{8} * vectors >= std::int64_t{7} * kept * threads; }
};

/// Returns teams whose threads keep up to `kept` vectors each. A block has `block` threads, or a single team of up to
/// `most` threads. Both are multiples of a warp.
inline Teams teams_of(const Cut& cut, int kept, int block, int most) {
  constexpr int in_warp = warp;
  if (cut.vectors == 0 || cut.vectors * cut.width != cut.columns || cut.vectors > std::int64_t{kept} * most) return {};
  const auto vectors = static_cast<int>(cut.vectors), needed = (vectors + kept - 1) / kept;
  int threads = (needed + in_warp - 1) / in_warp * in_warp;
  while (threads <= in_warp && threads / 2 >= needed) threads /= 2;
  return {.vectors = vectors, .threads = threads, .count = std::max(block / threads, 1)};
}

/// Returns a grid with one team per row, of at most `most` blocks.
inline Grid grid_of_teams(const Teams& teams, std::int64_t rows, std::int64_t most) {
  return {.x = static_cast<std::uint32_t>(std::clamp<std::int64_t>((rows + teams.count - 1) / teams.count, 1, most)),
          .threads = teams.block()};
}

/// This thread's position in its block's teams.
struct Member {
  std::int32_t team, lane;

  __device__ __forceinline__ Member(const Teams& teams)
      : team(static_cast<std::int32_t>(threadIdx.x) / teams.threads),
        lane(static_cast<std::int32_t>(threadIdx.x) % teams.threads) {}

  /// Calls body(i, column) for this thread's vectors of a row, at most N.
  template <int N, int W, class Body>
  __device__ __forceinline__ void for_vectors(const Teams& teams, const Body& body) const {
#pragma unroll
    for (int i = 0; i < N; ++i) {
      const std::int32_t vector = lane + i * teams.threads;
      if (vector < teams.vectors) body(i, vector * W);
    }
  }
};

/// Calls body(row, at, exists) for the rows of this thread's team, equally often in every thread of the block.
template <class Body>
__device__ __forceinline__ void for_rows_of_team(const Teams& teams, const Member& member, const NormSizes& sizes,
                                                 const Body& body) {
  const std::int64_t step = std::int64_t{gridDim.x} * teams.count, first = std::int64_t{blockIdx.x} * teams.count;
  HeadRow at(sizes, first + member.team);
  for (std::int64_t begin = first; begin < sizes.rows; begin += step, at.advance(sizes, step))
    body(begin + member.team, at, begin + member.team < sizes.rows);
}

/// Sums over teams. Two buffers alternate: when a thread writes one, all threads have read it, since they have passed
/// the barrier of the other.
class TeamSums {
 public:
  __device__ __forceinline__ TeamSums(const Teams& teams, const Member& member)
      : threads_(static_cast<unsigned>(teams.threads)),
        first_(static_cast<unsigned>(member.team * teams.threads) / warp),
        end_(first_ + threads_ / warp) {}

  /// Returns the sum over the team in each of its threads. All threads of the block must call it.
  __device__ __forceinline__ float of(float value) {
    __shared__ float sums[2][most_threads / warp];
    if (threads_ < warp) {
      for (unsigned mask = threads_ / 2; mask > 0; mask /= 2) value += exchange(value, static_cast<int>(mask));
      return value;
    }
    value = warp_sum(value);
    if (threads_ == warp) return value;
    turn_ ^= 1;
    if (threadIdx.x % warp == 0) sums[turn_][threadIdx.x / warp] = value;
    __syncthreads();
    float total = 0;
    for (unsigned i = first_; i < end_; ++i) total += sums[turn_][i];
    return total;
  }

 private:
  unsigned threads_, first_, end_;  ///< number of threads of the team, and its warps [first, end) of the block
  int turn_ = 0;
};

}  // namespace fsdp::device::cuda
