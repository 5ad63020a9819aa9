// SPDX-License-Identifier: Apache-2.0
/// @file
/// RMS norm (Zhang and Sennrich 2019).
#pragma once

#include <cstdint>
#include <string_view>
#include <tuple>

#include <tessera/fsdp/core/error.hpp>
#include <tessera/fsdp/core/tensor.hpp>
#include <tessera/fsdp/device/operation.hpp>

namespace fsdp::device {

/// Returns the number of heads per row that are normalised separately, each as wide as the weight; 1 if the whole row
/// is normalised.
inline std::int64_t heads_of(std::int64_t columns, std::int64_t weight) {
  return weight > 0 && columns % weight == 0 ? columns / weight : 1;
}

/// y = x / sqrt(mean(x^2) + eps) * weight, per row, or per head of a row if the weight is narrower. Writes 1 /
/// sqrt(...) to rstd for backward. y may alias x. With a weight in float (W), y is rounded once.
template <class T, class W = T>
struct RmsNorm {
  static constexpr std::string_view name = "rms_norm";

  Tensor<const T> x = {};       // [T, heads H]
  Tensor<const W> weight = {};  // [H]
  float eps = 1e-5f;
  Tensor<T> y = {};         // [T, heads H]
  Tensor<float> rstd = {};  // [heads T]: all rows of head 0, then of head 1, ...

  /// Returns the same with another weight.
  template <class V>
  RmsNorm<T, V> with(Tensor<const V> other) const {
    return {x, other, eps, y, rstd};
  }
  std::int64_t heads() const { return heads_of(x.columns(), weight.numel()); }  ///< norms per row: one, or one per head
  auto tensors() const { return std::tie(x, weight, y, rstd); }
  Cost cost() const { return {.bytes = x.bytes() + weight.bytes() + y.bytes() + rstd.bytes()}; }
  void check() const {
    require_same_shape(name, x, y);
    require(x.rank() == 2 && heads() * weight.numel() == x.columns() && rstd.numel() == heads() * x.rows(),
            "rms_norm: x must be [", rstd.numel(), ", ", weight.numel(),
            "], as many rows as rstd and as many columns as weights, or a multiple of them with an rstd for each head");
  }
};

/// Gradients dx and dw of RmsNorm, each overwritten or accumulated into. dx may alias dy. If dw has no storage, only dx
/// is computed.
template <class T, class W = T>
struct RmsNormBackward {
  static constexpr std::string_view name = "rms_norm_backward";

  Tensor<const T> x = {};         // [T, heads H]
  Tensor<const W> weight = {};    // [H]
  Tensor<const float> rstd = {};  // [heads T]
  Tensor<const T> dy = {};        // [T, heads H]
  Tensor<T> dx = {};              // [T, heads H]
  Write dx_write = Write::overwrite;
  Tensor<float> dw = {};  // [H]
  Write dw_write = Write::overwrite;

  /// Returns the same with another weight.
  template <class V>
  RmsNormBackward<T, V> with(Tensor<const V> other) const {
    return {x, other, rstd, dy, dx, dx_write, dw, dw_write};
  }
  std::int64_t heads() const { return heads_of(x.columns(), weight.numel()); }  ///< norms per row: one, or one per head
  bool wants_dw() const { return dw.data() != nullptr; }                        ///< whether dw is computed
  auto tensors() const { return std::tie(x, weight, rstd, dy, dx, dw); }
  Cost cost() const {
    const auto times = [](Write write) { return write == Write::accumulate ? 2 : 1; };
    return {.bytes = x.bytes() + weight.bytes() + rstd.bytes() + dy.bytes() + times(dx_write) * dx.bytes() +
                     times(dw_write) * dw.bytes()};
  }
  void check() const {
    require_same_shape(name, x, dy);
    require_same_shape(name, x, dx);
    require(x.rank() == 2 && heads() * weight.numel() == x.columns() && dw.numel() == weight.numel() &&
                rstd.numel() == heads() * x.rows(),
            "rms_norm_backward: x must be [", rstd.numel(), ", ", weight.numel(),
            "], as many rows as rstd and as many columns as weights and as dw, or a multiple of them with an rstd for "
            "each head");
  }
};

}  // namespace fsdp::device
