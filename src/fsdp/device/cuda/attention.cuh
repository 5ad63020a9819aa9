// SPDX-License-Identifier: Apache-2.0
/// @file
/// Code shared by attention's kernels: sizes, the position of a block, the choice of a kernel, rows of heads in
/// registers.
#pragma once

#include <cmath>
#include <cstdint>
#include <type_traits>
#include <utility>

#include <tessera/fsdp/core/error.hpp>

#include "kernel.cuh"

namespace fsdp::device::cuda {

inline constexpr float log2_e = 1.44269504f;
inline constexpr float ln_2 = 0.693147181f;

struct AttentionSizes {
  std::int64_t sequences, heads, kv_heads, head_dim;
  std::int32_t length;  ///< sequence length; positions have 32 bits, since each score needs comparisons of positions
  std::int32_t reach;   ///< maximum number of earlier keys that a query attends to
  float scale;
  float scale_log2;           ///< scale * log2(e), for scores that become exponents of 2
  const std::int32_t* first;  ///< first row of every token's document, or nullptr

  AttentionSizes(const AttentionShape& shape, Tensor<const std::int32_t> first_rows)
      : sequences(shape.sequences),
        heads(shape.heads),
        kv_heads(shape.kv_heads),
        head_dim(shape.head_dim),
        length(static_cast<std::int32_t>(shape.sequence_length)),
        reach(static_cast<std::int32_t>((shape.windowed() ? shape.window : shape.sequence_length) - 1)),
        scale(1.0f / std::sqrt(static_cast<float>(shape.head_dim))),
        scale_log2(scale * log2_e),
        first(first_rows.data()) {
    require<InputError>(shape.tokens() <= 0x7fff'0000, "attention on cuda: ", shape.tokens(),
                        " tokens; rows are counted in 32 bits");
  }

  __device__ __forceinline__ std::int32_t group() const {
    return static_cast<std::int32_t>(heads) / static_cast<std::int32_t>(kv_heads);
  }
  /// Returns the first row of the query's document, relative to `origin`, the first row of its sequence.
  __device__ __forceinline__ std::int32_t document(std::int64_t origin, std::int32_t query) const {
    return first == nullptr ? 0 : first[origin + query] - static_cast<std::int32_t>(origin);
  }
  /// Returns the first key that a query of this document attends to, also relative to the sequence.
  __device__ __forceinline__ std::int32_t first_key_in(std::int32_t document, std::int32_t query) const {
    const std::int32_t first_in_window = query - reach;
    return document > first_in_window ? document : first_in_window;
  }
  __device__ __forceinline__ std::int32_t first_key(std::int64_t origin, std::int32_t query) const {
    return first_key_in(document(origin, query), query);
  }
  __device__ __forceinline__ std::int32_t columns() const { return static_cast<std::int32_t>(head_dim); }
  /// Returns the index of a query's values in lse and in dout . out; its sequence starts at row `origin`.
  __device__ __forceinline__ std::int64_t statistic(std::int64_t origin, std::int64_t head, std::int32_t query) const {
    return origin * heads + head * length + query;
  }
  /// Returns whether every query attends to all earlier keys.
  __device__ __forceinline__ bool sees_all() const { return first == nullptr && reach == length - 1; }
};

/// The rows that a thread block processes: a block of rows of one head of one sequence.
struct AttentionBlock {
  std::int32_t sequence, head, index;

  /// Heads are the fastest-changing index, so that heads that share keys run together.
  __device__ __forceinline__ AttentionBlock(std::uint32_t block, std::int64_t heads, std::uint32_t blocks) {
    const std::uint32_t rest = block / static_cast<std::uint32_t>(heads);
    sequence = static_cast<std::int32_t>(rest / blocks);
    head = static_cast<std::int32_t>(block % static_cast<std::uint32_t>(heads));
    index = static_cast<std::int32_t>(rest % blocks);
  }
};

/// Returns whether tensor-core tiles support this head size: a tile's rows are copied 8 columns at a time.
inline bool fits_tiles(std::int64_t head_dim) { return head_dim % 8 == 0 && head_dim <= 256; }

/// Calls body with the width of the narrowest tile that fits heads of this size, as a constant. Columns beyond the head
/// are zeros, so that few kernels support all sizes.
template <class Body>
void with_tile_columns(std::int64_t head_dim, const Body& body) {
  const auto narrowest = [&]<int... Columns>(std::integer_sequence<int, Columns...>) {
    static_cast<void>(((head_dim <= Columns && (body(std::integral_constant<int, Columns>()), true)) || ...));
  };
  narrowest(std::integer_sequence<int, 32, 64, 80, 96, 128, 192, 256>());
}

/// Returns whether rows start at multiples of 16 bytes, as tensor-core tiles require.
template <class... T>
bool rows_are_wide(const Tensor<T>&... matrices) {
  const auto is_wide = [](const Access& a) {
    return reinterpret_cast<std::uintptr_t>(a.data) % 16 == 0 && a.row_stride * a.element_bytes % 16 == 0;
  };
  return (is_wide(access(matrices)) && ...);
}

/// AttentionBackward's arguments for kernels.
template <class T>
struct BackwardArguments {
  Rows<const T> q, k, v, dout;
  const float* lse;
  const float* products;  ///< [sequences * heads, S]: dout . out
  Rows<T> dq, dk, dv;
};

/// A row of a head, distributed over the lanes of a warp: lane l stores columns l, l + 32, ... The row has at most 32 N
/// columns.
template <int N>
struct LaneRow {
  float values[N] = {};

  template <class T>
  __device__ __forceinline__ void load(const T* row, std::int64_t head_dim) {
#pragma unroll
    for (int i = 0; i < N; ++i) {
      const std::int64_t column = threadIdx.x % warp + i * warp;
      values[i] = column < head_dim ? widen(row[column]) : 0.0f;
    }
  }
  template <class T>
  __device__ __forceinline__ void store(T* row, std::int64_t head_dim, float factor) const {
#pragma unroll
    for (int i = 0; i < N; ++i) {
      const std::int64_t column = threadIdx.x % warp + i * warp;
      if (column < head_dim) row[column] = narrow<T>(values[i] * factor);
    }
  }
  __device__ __forceinline__ void add(const LaneRow& other, float own_factor, float factor) {
#pragma unroll
    for (int i = 0; i < N; ++i) values[i] = values[i] * own_factor + other.values[i] * factor;
  }
  __device__ __forceinline__ float dot(const LaneRow& other) const {
    float sum = 0;
#pragma unroll
    for (int i = 0; i < N; ++i) sum += values[i] * other.values[i];
    return warp_sum(sum);
  }
};

/// Calls body with the number of columns per lane as a constant.
template <class Body>
void with_columns(std::int64_t head_dim, const Body& body) {
  require<InputError>(head_dim <= 512, "attention on cuda: heads of ", head_dim, " columns; at most 512");
  if (head_dim <= 128)
    body(std::integral_constant<int, 4>());
  else
    body(std::integral_constant<int, 16>());
}

// In attention_plain.cu: any type, any strides, head sizes up to 512.
template <class T>
void attention_plain(Lane, const AttentionSizes&, const Attention<T>&);
template <class T>
void attention_backward_plain(Lane, const AttentionSizes&, const AttentionBackward<T>&, float* products);
/// products = dout . out, which every backward needs.
template <class T>
void attention_products(Lane, const AttentionSizes&, const AttentionBackward<T>&, float* products);

}  // namespace fsdp::device::cuda
