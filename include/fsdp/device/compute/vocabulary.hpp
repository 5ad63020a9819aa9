// SPDX-License-Identifier: Apache-2.0
/// @file
/// Operations over the vocabulary: embedding lookup and its gradient, and cross entropy and its gradient, for whole
/// rows of logits or for blocks of columns.
#pragma once

#include <algorithm>
#include <cstdint>
#include <string_view>
#include <tuple>

#include <tessera/fsdp/core/error.hpp>
#include <tessera/fsdp/core/tensor.hpp>
#include <tessera/fsdp/device/operation.hpp>

namespace fsdp::device {

/// out[t] = table[tokens[t]], rounded to T from a table in float (W).
template <class T, class W = T>
struct Embedding {
  static constexpr std::string_view name = "embedding";

  Tensor<const W> table = {};              // [V, H]
  Tensor<const std::int32_t> tokens = {};  // [T]
  Tensor<T> out = {};                      // [T, H]

  /// Returns the same with another table.
  template <class V>
  Embedding<T, V> with(Tensor<const V> other) const {
    return {other, tokens, out};
  }
  auto tensors() const { return std::tie(table, tokens, out); }
  Cost cost() const { return {.bytes = tokens.bytes() + out.bytes() + out.numel() * std::int64_t{sizeof(W)}}; }
  void check() const {
    require(table.rank() == 2 && out.rank() == 2 && out.rows() == tokens.numel() && out.columns() == table.columns(),
            "embedding: the output must be [", tokens.numel(), " tokens, the table's columns]");
  }
};

/// dtable[tokens[t]] += dy[t] in the order of t; Write::overwrite clears the table first.
template <class T>
struct EmbeddingBackward {
  static constexpr std::string_view name = "embedding_backward";

  Tensor<const std::int32_t> tokens = {};  // [T]
  Tensor<const T> dy = {};                 // [T, H]
  Tensor<float> dtable = {};               // [V, H]
  Write write = Write::overwrite;

  auto tensors() const { return std::tie(tokens, dy, dtable); }
  Cost cost() const {
    const std::int64_t touched = std::min(tokens.numel(), dtable.rows()) * dtable.columns() * 4;
    return {.bytes = tokens.bytes() + dy.bytes() + (write == Write::overwrite ? dtable.bytes() : 2 * touched)};
  }
  void check() const {
    require(dtable.rank() == 2 && dy.rank() == 2 && dy.rows() == tokens.numel() && dy.columns() == dtable.columns(),
            "embedding_backward: the gradient must be [", tokens.numel(), " tokens, the table's columns]");
  }
};

/// Number of doubles in a row's state: the maximum, the sum of exponentials and the target's logit.
inline constexpr std::int64_t cross_entropy_state = 3;

namespace detail {

template <class T>
void check_cross_entropy(const Tensor<T>& logits, const Tensor<const std::int32_t>& targets, bool has_result,
                         std::string_view needs = "") {
  require(logits.rank() == 2 && logits.rows() == targets.numel() && has_result, "cross_entropy: ", targets.numel(),
          " targets for ", logits.rank() == 2 ? logits.rows() : 0, " rows of logits", needs);
}

template <class T>
void check_cross_entropy_block(const Tensor<T>& logits, const Tensor<const std::int32_t>& targets, const Shape& state) {
  const bool has_state = logits.rank() == 2 && state == Shape{logits.rows(), cross_entropy_state};
  check_cross_entropy(logits, targets, has_state, ", whose state must be [rows, 3]");
}

}  // namespace detail

/// Adds the negative log likelihood of every row to loss[0], and replaces the logits by their gradient,
/// scale * (softmax - one_hot). Devices that check targets throw InputError if one is not in [0, V).
template <class T>
struct CrossEntropy {
  static constexpr std::string_view name = "cross_entropy";

  Tensor<T> logits = {};                    // [t, V]
  Tensor<const std::int32_t> targets = {};  // [t]
  float scale = 1;
  Tensor<double> loss = {};  // [1]

  auto tensors() const { return std::tie(targets, logits, loss); }
  Cost cost() const { return {.bytes = 2 * logits.bytes() + targets.bytes()}; }
  void check() const { detail::check_cross_entropy(logits, targets, loss.numel() >= 1); }
};

/// Adds the same loss as CrossEntropy to loss[0] without computing a gradient. Does not change the logits.
template <class T>
struct CrossEntropyLoss {
  static constexpr std::string_view name = "cross_entropy_loss";

  Tensor<const T> logits = {};              // [t, V]
  Tensor<const std::int32_t> targets = {};  // [t]
  Tensor<double> loss = {};                 // [1]

  auto tensors() const { return std::tie(logits, targets, loss); }
  Cost cost() const { return {.bytes = logits.bytes() + targets.bytes()}; }
  void check() const { detail::check_cross_entropy(logits, targets, loss.numel() >= 1); }
};

/// Folds columns [first, first + c) of the logits into `state`.
template <class T>
struct CrossEntropyFold {
  static constexpr std::string_view name = "cross_entropy_fold";

  Tensor<const T> logits = {};  // [t, c]
  std::int64_t first = 0;
  Tensor<const std::int32_t> targets = {};  // [t]
  Tensor<double> state = {};                // [t, 3]

  auto tensors() const { return std::tie(logits, targets, state); }
  Cost cost() const { return {.bytes = logits.bytes() + targets.bytes() + state.bytes()}; }
  void check() const { detail::check_cross_entropy_block(logits, targets, state.shape()); }
};

/// Adds the negative log likelihood of every row to loss[0], from the rows' states.
struct CrossEntropySum {
  static constexpr std::string_view name = "cross_entropy_sum";

  Tensor<const double> state = {};  // [t, 3]
  Tensor<double> loss = {};         // [1]

  auto tensors() const { return std::tie(state, loss); }
  Cost cost() const { return {.bytes = state.bytes()}; }
  void check() const {
    require(state.rank() == 2 && state.columns() == cross_entropy_state && loss.numel() >= 1,
            "cross_entropy: a state is [rows, 3]");
  }
};

/// Replaces columns [first, first + c) of the logits by their gradient, scale * (softmax - one_hot).
template <class T>
struct CrossEntropyGradient {
  static constexpr std::string_view name = "cross_entropy_gradient";

  Tensor<T> logits = {};  // [t, c]
  std::int64_t first = 0;
  Tensor<const std::int32_t> targets = {};  // [t]
  float scale = 1;
  Tensor<const double> state = {};  // [t, 3]

  auto tensors() const { return std::tie(targets, state, logits); }
  Cost cost() const { return {.bytes = 2 * logits.bytes() + targets.bytes() + state.bytes()}; }
  void check() const { detail::check_cross_entropy_block(logits, targets, state.shape()); }
};

}  // namespace fsdp::device
