// SPDX-License-Identifier: Apache-2.0
/// @file
/// Embedding lookup and its gradient.
#pragma once

#include <algorithm>
#include <cstdint>
#include <string_view>
#include <tuple>

#include <tessera/fsdp/core/error.hpp>
#include <tessera/fsdp/core/tensor.hpp>
#include <tessera/fsdp/device/operation.hpp>

namespace fsdp::device {

/// out[t] = table[tokens[t]].
template <class T>
struct Embedding {
  static constexpr std::string_view name = "embedding";

  Tensor<const T> table = {};              // [V, H]
  Tensor<const std::int32_t> tokens = {};  // [T]
  Tensor<T> out = {};                      // [T, H]

  auto tensors() const { return std::tie(table, tokens, out); }
  Cost cost() const { return {.bytes = tokens.bytes() + 2 * out.bytes()}; }
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

}  // namespace fsdp::device
