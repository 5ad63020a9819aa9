// SPDX-License-Identifier: Apache-2.0
/// @file
/// Causal grouped-query attention, scaled by 1 / sqrt(head_dim), over documents or a sliding window.
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

}  // namespace fsdp::device
