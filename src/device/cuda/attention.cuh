// SPDX-License-Identifier: Apache-2.0
/// @file
/// What attention's kernels share: sizes, where a block works, which variant fits.
#pragma once

#include <cmath>
#include <cstdint>

#include "kernel.cuh"

namespace fsdp::device::cuda {

inline constexpr float log2_e = 1.44269504f;
inline constexpr float ln_2 = 0.693147181f;

struct AttentionSizes {
  std::int64_t sequences, heads, kv_heads, head_dim;
  std::int32_t length;  ///< places in a sequence are 32 bits wide: they are compared once for every score
  std::int32_t window;  ///< keys that a query sees at most; 0: no window
  float scale;
  const std::int32_t* first;  ///< first row of every token's document, or nullptr

  AttentionSizes(const AttentionShape& shape, Tensor<const std::int32_t> first_rows)
      : sequences(shape.sequences),
        heads(shape.heads),
        kv_heads(shape.kv_heads),
        head_dim(shape.head_dim),
        length(static_cast<std::int32_t>(shape.sequence_length)),
        window(shape.windowed() ? static_cast<std::int32_t>(shape.window) : 0),
        scale(1.0f / std::sqrt(static_cast<float>(shape.head_dim))),
        first(first_rows.data()) {
    require<InputError>(shape.tokens() <= 0x7fff'0000, "attention on cuda: ", shape.tokens(),
                        " tokens; rows are counted in 32 bits");
  }

  __device__ __forceinline__ std::int64_t group() const { return heads / kv_heads; }
  /// The first key, counted in the sequence that starts at row `origin`, that query `query` of it sees.
  __device__ __forceinline__ std::int32_t first_key(std::int64_t origin, std::int32_t query) const {
    const std::int32_t document = first == nullptr ? 0 : first[origin + query] - static_cast<std::int32_t>(origin);
    return window == 0 || query - window < document ? document : query - window + 1;
  }
  /// Whether every query sees all keys before it.
  __device__ __forceinline__ bool sees_all() const { return first == nullptr && window == 0; }
};

/// Where a block of attention works: a block of rows of one head of one sequence.
struct AttentionBlock {
  std::int64_t sequence, head;
  std::int32_t index;

  /// Heads lie beside each other, so that those that share keys run together.
  __device__ __forceinline__ AttentionBlock(std::int64_t block, std::int64_t heads, std::int64_t blocks)
      : sequence(block / heads / blocks),
        head(block % heads),
        index(static_cast<std::int32_t>(block / heads % blocks)) {}
};

/// Whether rows start at multiples of 16 bytes, as the tensor cores' tiles need.
template <class... T>
bool rows_are_wide(const Tensor<T>&... matrices) {
  const auto is_wide = [](const Access& a) {
    return reinterpret_cast<std::uintptr_t>(a.data) % 16 == 0 && a.row_stride * a.element_bytes % 16 == 0;
  };
  return (is_wide(access(matrices)) && ...);
}

// attention_plain.cu: any type, strides and head sizes up to 512
template <class T>
void attention_plain(Lane, const AttentionSizes&, Tensor<const T> q, Tensor<const T> k, Tensor<const T> v,
                     Tensor<T> out, Tensor<float> lse);
template <class T>
void attention_backward_plain(Lane, const AttentionSizes&, const AttentionBackward<T>&);
/// products = dout . out, which every backward needs.
template <class T>
void attention_products(Lane, const AttentionSizes&, const AttentionBackward<T>&);

}  // namespace fsdp::device::cuda
