// SPDX-License-Identifier: Apache-2.0
/// @file
/// Attention to the KV cache: one thread block per head and sequence, whose warps divide the keys.
#include <algorithm>
#include <cmath>

#include "attention.cuh"

namespace fsdp::device::cuda {
namespace {

constexpr int cached_warps = 8;

/// The arguments of CachedAttention's kernel.
template <class T>
struct Cached {
  Rows<const T> q, keys, values;
  Rows<T> out;
  const std::int32_t* positions;
  std::int64_t sequences, heads, group, head_dim, capacity, window;
  float scale;
};

/// A query's partial result over a subset of the keys: the largest score, the sum of e^(score - largest), and the sum
/// of the values weighted by these exponentials.
template <int N>
struct Gathered {
  float most = -INFINITY, total = 0;
  LaneRow<N> sum;

  __device__ __forceinline__ void add(float other_most, float other_total, const LaneRow<N>& other) {
    const float larger = fmaxf(most, other_most);
    if (larger == -INFINITY) return;
    const float kept = expf(most - larger), factor = expf(other_most - larger);
    sum.add(other, kept, factor);
    total = total * kept + other_total * factor;
    most = larger;
  }
};

template <class T, int N>
__global__ void attend_to_cached(Cached<T> c) {
  __shared__ float most[cached_warps], total[cached_warps], sums[cached_warps][N * warp];
  const int own = static_cast<int>(threadIdx.x / warp), lane = static_cast<int>(threadIdx.x % warp);
  for (std::int64_t task = blockIdx.x; task < c.sequences * c.heads; task += gridDim.x) {
    const std::int64_t sequence = task / c.heads, head = task % c.heads;
    const std::int64_t origin = task / c.group * c.capacity;  // first row of the key-value head
    const std::int64_t position = c.positions[sequence];
    const std::int64_t first = position + 1 > c.window ? position + 1 - c.window : 0;
    LaneRow<N> query, key, value;
    query.load(c.q.row(sequence) + head * c.head_dim, c.head_dim);
    Gathered<N> gathered;
    for (std::int64_t j = first + own; j <= position; j += cached_warps) {
      key.load(c.keys.row(origin + j), c.head_dim);
      value.load(c.values.row(origin + j), c.head_dim);
      gathered.add(query.dot(key) * c.scale, 1.0f, value);
    }
    __syncthreads();  // the first warp may still be reading an earlier task's data
    gathered.sum.store(sums[own], N * warp, 1.0f);
    if (lane == 0) {
      most[own] = gathered.most;
      total[own] = gathered.total;
    }
    __syncthreads();
    if (own > 0) continue;
    for (int other = 1; other < cached_warps; ++other) {
      value.load(sums[other], N * warp);
      gathered.add(most[other], total[other], value);
    }
    gathered.sum.store(c.out.row(sequence) + head * c.head_dim, c.head_dim, 1.0f / gathered.total);
  }
}

/// The arguments of KeepHeads' kernel; `positions` may be nullptr.
template <class T>
struct Kept {
  Rows<const T> x;
  Rows<T> kept;
  const std::int32_t* positions;
  std::int64_t columns, head_dim, heads, capacity, length, count;
};

template <class T>
__global__ void copy_heads(Kept<T> k) {
  for (std::int64_t i = thread_of_grid(); i < k.count; i += threads_of_grid()) {
    const std::int64_t token = i / k.columns, column = i % k.columns, sequence = token / k.length;
    const std::int64_t place = k.positions == nullptr ? token % k.length : k.positions[sequence];
    const std::int64_t row = (sequence * k.heads + column / k.head_dim) * k.capacity + place;
    k.kept.row(row)[column % k.head_dim] = k.x.row(token)[column];
  }
}

}  // namespace

template <class T>
void compute(Lane lane, const KeepHeads<T>& op) {
  if (op.x.numel() == 0) return;
  const Kept<T> kept{.x = op.x,
                     .kept = op.kept,
                     .positions = op.positions.data(),
                     .columns = op.x.columns(),
                     .head_dim = op.kept.columns(),
                     .heads = op.heads(),
                     .capacity = op.capacity(),
                     .length = op.length(),
                     .count = op.x.numel()};
  launch(lane, "keep_heads", copy_heads<T>, grid_of_elements(1, kept.count), 0, kept);
}

template <class T>
void compute(Lane lane, const CachedAttention<T>& op) {
  const Grid grid{.x = static_cast<std::uint32_t>(std::min<std::int64_t>(op.sequences() * op.heads(), most_blocks)),
                  .threads = cached_warps * warp};
  const Cached<T> cached{op.q,
                         op.keys,
                         op.values,
                         op.out,
                         op.positions.data(),
                         op.sequences(),
                         op.heads(),
                         op.group(),
                         op.head_dim(),
                         op.capacity(),
                         op.window > 0 ? op.window : op.capacity(),
                         1.0f / std::sqrt(static_cast<float>(op.head_dim()))};
  with_columns(op.head_dim(), [&](auto n) {
    launch(lane, "cached_attention", attend_to_cached<T, decltype(n)::value>, grid, 0, cached);
  });
}

FSDP_FOR_TYPES(compute, Lane, KeepHeads)
FSDP_FOR_TYPES(compute, Lane, CachedAttention)

}  // namespace fsdp::device::cuda
