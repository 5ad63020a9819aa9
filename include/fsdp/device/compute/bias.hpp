// SPDX-License-Identifier: Apache-2.0
/// @file
/// The bias of a linear layer.
#pragma once

#include <string_view>
#include <tuple>

#include <tessera/fsdp/core/error.hpp>
#include <tessera/fsdp/core/tensor.hpp>
#include <tessera/fsdp/device/operation.hpp>

namespace fsdp::device {

/// y += bias for every row.
template <class T>
struct AddBias {
  static constexpr std::string_view name = "add_bias";

  Tensor<const T> bias = {};  // [N]
  Tensor<T> y = {};           // [T, N]

  auto tensors() const { return std::tie(bias, y); }
  Cost cost() const { return {.bytes = bias.bytes() + 2 * y.bytes()}; }
  void check() const {
    require(y.rank() == 2 && bias.numel() == y.columns(), "add_bias: y must be [rows, ", bias.numel(), "]");
  }
};

/// dbias = (or +=) the sum of dy's rows.
template <class T>
struct BiasBackward {
  static constexpr std::string_view name = "bias_backward";

  Tensor<const T> dy = {};   // [T, N]
  Tensor<float> dbias = {};  // [N]
  Write write = Write::overwrite;

  auto tensors() const { return std::tie(dy, dbias); }
  Cost cost() const { return {.bytes = dy.bytes() + (write == Write::accumulate ? 2 : 1) * dbias.bytes()}; }
  void check() const {
    require(dy.rank() == 2 && dbias.numel() == dy.columns(), "bias_backward: dy must be [rows, ", dbias.numel(), "]");
  }
};

}  // namespace fsdp::device
