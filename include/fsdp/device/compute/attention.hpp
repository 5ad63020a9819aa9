// SPDX-License-Identifier: Apache-2.0
/// @file
/// Causal grouped-query attention, scaled by 1 / sqrt(head_dim): over documents or a sliding window, and to a KV cache
/// in decoding.
#pragma once

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <string_view>
#include <tuple>

#include <tessera/fsdp/core/checked.hpp>
#include <tessera/fsdp/core/error.hpp>
#include <tessera/fsdp/core/tensor.hpp>
#include <tessera/fsdp/device/documents.hpp>
#include <tessera/fsdp/device/operation.hpp>

namespace fsdp::device {

/// The shape of an attention: contiguous sequences of equal length. A token attends to itself and the earlier tokens of
/// its document; with a window, only to the last `window` of these, including itself (Mistral 7B, Jiang et al. 2023).
/// Without `documents`, each sequence is one document.
struct AttentionShape {
  std::int64_t sequences = 1;
  std::int64_t sequence_length = 0;
  std::int64_t heads = 0;
  std::int64_t kv_heads = 0;  ///< a divisor of `heads`; query heads [h * g, (h + 1) * g) share key-value head h
  std::int64_t head_dim = 0;
  CumulativeLengths documents = {};  ///< cumulative lengths of packed documents; empty: each sequence is one document
  std::int64_t window = 0;           ///< maximum number of keys that a query attends to; 0: no limit

  /// Returns the number of tokens of all sequences.
  std::int64_t tokens() const { return sequences * sequence_length; }
  /// Returns whether the window hides any key.
  bool windowed() const { return window > 0 && window < sequence_length; }
  /// Returns the square of a document's length, minus the part that the window hides: the sum of 2 n - 1 over all
  /// queries, where n is the number of keys that a query attends to.
  std::int64_t square(std::int64_t length) const {
    const std::int64_t seen = window > 0 ? std::min(window, length) : length;
    return checked_multiply(seen, seen) + checked_multiply(length - seen, 2 * seen - 1);
  }
  /// Returns the sum of `square` over all documents.
  std::int64_t squares() const {
    if (documents.empty()) return checked_multiply(sequences, square(sequence_length));
    std::int64_t sum = 0;
    for (std::size_t i = 1; i < documents.size(); ++i) sum += square(documents[i] - documents[i - 1]);
    return sum;
  }
  /// Returns the document of a token.
  Document document(std::int64_t token) const { return document_of(documents, sequence_length, token); }

  /// Return the shapes of q, and of k and v.
  /// @{
  Shape queries() const { return {tokens(), heads * head_dim}; }
  Shape keys() const { return {tokens(), kv_heads * head_dim}; }
  /// @}
  /// Returns the FLOPs of `products` matmuls of queries with keys, over all heads; half of the full products, because
  /// of the causal mask.
  std::int64_t flops(std::int64_t products) const {
    return products * checked_multiply(checked_multiply(heads, head_dim), squares());
  }
  /// Throws unless these are the shapes of q, k, v, out (or another tensor shaped like q) and lse.
  void check(const Shape& q, const Shape& k, const Shape& v, const Shape& out, const Shape& lse) const {
    require(q == queries() && out == queries() && k == keys() && v == keys() &&
                lse == Shape{sequences * heads, sequence_length},
            "attention: q and out must be [", queries()[0], ", ", queries()[1], "], k and v [", keys()[0], ", ",
            keys()[1], "]");
    require(window >= 0, "attention: a window of ", window, " tokens; 0 is none");
    require_documents(documents, tokens(), sequence_length);
  }
};

/// Attention in blocks with an online softmax; memory is linear in the sequence (Dao 2023, FlashAttention-2). `lse`
/// stores log sum exp for backward. Blocks of keys that no query of a block attends to (future, other documents,
/// outside the window) are skipped. Scratch does not depend on documents or the window.
template <class T>
struct Attention {
  static constexpr std::string_view name = "attention";

  AttentionShape shape = {};
  Tensor<const T> q = {};  // [T, heads * head_dim]
  Tensor<const T> k = {};  // [T, kv_heads * head_dim]
  Tensor<const T> v = {};  // same shape as k
  Tensor<T> out = {};      // same shape as q
  Tensor<float> lse = {};  // [sequences * heads, S]

  auto tensors() const { return std::tie(q, k, v, out, lse); }
  Cost cost() const { return {.attention_flops = shape.flops(2)}; }
  void check() const { shape.check(q.shape(), k.shape(), v.shape(), out.shape(), lse.shape()); }
};

/// Gradients of Attention, from its inputs and outputs (FlashAttention-2, algorithm 2).
template <class T>
struct AttentionBackward {
  static constexpr std::string_view name = "attention_backward";

  AttentionShape shape = {};
  Tensor<const T> q = {};  // shapes as in Attention
  Tensor<const T> k = {};
  Tensor<const T> v = {};
  Tensor<const T> out = {};
  Tensor<const float> lse = {};
  Tensor<const T> dout = {};
  Tensor<T> dq = {};
  Tensor<T> dk = {};
  Tensor<T> dv = {};

  auto tensors() const { return std::tie(q, k, v, out, lse, dout, dq, dk, dv); }
  Cost cost() const { return {.attention_flops = shape.flops(5)}; }
  void check() const {
    shape.check(q.shape(), k.shape(), v.shape(), out.shape(), lse.shape());
    shape.check(dq.shape(), dk.shape(), dv.shape(), dout.shape(), lse.shape());
  }
};

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
