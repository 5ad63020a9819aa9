// SPDX-License-Identifier: Apache-2.0
/// @file
/// The KV cache and attention to it: one decoding step of generation.
///
/// The cache is ordered by head, so that a query reads it contiguously: row (i * kv_heads + h) * capacity + p is head h
/// of token p of sequence i.
#pragma once

#include <algorithm>
#include <cstdint>
#include <string_view>
#include <tuple>

#include <tessera/fsdp/core/checked.hpp>
#include <tessera/fsdp/core/error.hpp>
#include <tessera/fsdp/core/tensor.hpp>
#include <tessera/fsdp/device/operation.hpp>

namespace fsdp::device {

/// Writes keys or values of new tokens into the cache. With empty `positions` (prefill): the first x.rows() / sequences
/// tokens of each sequence. Otherwise (decoding): one token of each sequence, at `positions`.
template <class T>
struct KeepHeads {
  static constexpr std::string_view name = "keep_heads";

  std::int64_t sequences = 1;
  Tensor<const std::int32_t> positions = {};  // [sequences], or empty for prefill
  Tensor<const T> x = {};                     // [T, kv_heads * head_dim]
  Tensor<T> kept = {};                        // [sequences * kv_heads * capacity, head_dim]

  auto tensors() const { return std::tie(positions, x, kept); }
  /// Sizes that follow from the shapes: key-value heads, maximum cached tokens per sequence, and tokens per sequence in
  /// x.
  /// @{
  std::int64_t heads() const { return x.columns() / kept.columns(); }
  std::int64_t capacity() const { return kept.rows() / (sequences * heads()); }
  std::int64_t length() const { return x.rows() / sequences; }
  /// @}
  Cost cost() const { return {.bytes = 2 * x.bytes()}; }
  void check() const {
    require(x.rank() == 2 && kept.rank() == 2 && sequences > 0 && x.rows() % sequences == 0 && kept.columns() > 0 &&
                x.columns() > 0 && x.columns() % kept.columns() == 0 && kept.rows() % (sequences * heads()) == 0,
            "keep_heads: x must be [sequences * tokens, heads * ", kept.rank() == 2 ? kept.columns() : 0,
            "], and there must be as many rows for each head of the ", sequences, " sequences");
    require(length() <= capacity() && (positions.numel() == 0 || (positions.numel() == sequences && length() == 1)),
            "keep_heads: ", length(), " tokens of a sequence do not fit into ", capacity(),
            " rows, or sequences that go on are given more than one");
  }
};

/// Grouped-query attention, as in device::Attention, of one query per sequence to the cache: sequence i's query attends
/// to its cached tokens [0, positions[i]], the last of which is its own token; with a window, only to the last `window`
/// of these.
template <class T>
struct CachedAttention {
  static constexpr std::string_view name = "cached_attention";

  std::int64_t kv_heads = 0;  ///< a divisor of q's heads; query heads [h * g, (h + 1) * g) share key-value head h
  std::int64_t window = 0;    ///< maximum number of tokens that a query attends to; 0: all
  std::int64_t longest = 0;   ///< largest position plus 1; cost() assumes it for every sequence
  Tensor<const std::int32_t> positions = {};  // [sequences]
  Tensor<const T> q = {};                     // [sequences, heads * head_dim]
  Tensor<const T> keys = {};                  // [sequences * kv_heads * capacity, head_dim]
  Tensor<const T> values = {};                // same shape as keys
  Tensor<T> out = {};                         // same shape as q

  auto tensors() const { return std::tie(positions, q, keys, values, out); }
  /// Sizes that follow from the shapes. `group`: query heads per key-value head; `seen`: maximum number of tokens that
  /// a query attends to.
  /// @{
  std::int64_t sequences() const { return q.rows(); }
  std::int64_t head_dim() const { return keys.columns(); }
  std::int64_t heads() const { return q.columns() / head_dim(); }
  std::int64_t group() const { return heads() / kv_heads; }
  std::int64_t capacity() const { return keys.rows() / (sequences() * kv_heads); }
  std::int64_t seen() const { return window > 0 ? std::min(window, longest) : longest; }
  /// @}
  Cost cost() const { return {.attention_flops = 4 * checked_multiply(q.numel(), seen())}; }
  void check() const {
    require(q.rank() == 2 && keys.rank() == 2 && kv_heads > 0 && q.numel() > 0 && keys.columns() > 0 &&
                q.columns() % (kv_heads * keys.columns()) == 0 && keys.rows() % (q.rows() * kv_heads) == 0 &&
                keys.contiguous() && values.contiguous() && values.shape() == keys.shape() &&
                out.shape() == q.shape() && positions.numel() == q.rows(),
            "cached_attention: q and out must be [sequences, heads * head_dim], keys and values [sequences * ",
            kv_heads, " * capacity, head_dim] without gaps, with a position for each sequence");
    require(window >= 0 && longest > 0 && longest <= capacity(), "cached_attention: ", longest,
            " tokens of a sequence, and ", capacity(), " can be kept");
  }
};

}  // namespace fsdp::device
