// SPDX-License-Identifier: Apache-2.0
/// @file
/// Operations on each element: add, copy, fill.
#pragma once

#include <string_view>
#include <tuple>

#include <fsdp/core/tensor.hpp>
#include <fsdp/device/operation.hpp>
#include <fsdp/device/operations/shapes.hpp>

namespace fsdp::device {

/// y += x.
template <class T>
struct Add {
  static constexpr std::string_view name = "add";

  Tensor<const T> x = {};
  Tensor<T> y = {};

  auto tensors() const { return std::tie(x, y); }
  Cost cost() const { return {.bytes = x.bytes() + 2 * y.bytes()}; }
  void check() const { require_same_shape(name, x, y); }
};

/// y = x, rounding where Y is narrower.
template <class X, class Y = X>
struct Copy {
  static constexpr std::string_view name = "copy";

  Tensor<const X> x = {};
  Tensor<Y> y = {};

  auto tensors() const { return std::tie(x, y); }
  Cost cost() const { return {.bytes = x.bytes() + y.bytes()}; }
  void check() const { require_same_shape(name, x, y); }
};

/// y = value.
template <class T>
struct Fill {
  static constexpr std::string_view name = "fill";

  Tensor<T> y = {};
  float value = 0;

  auto tensors() const { return std::tie(y); }
  Cost cost() const { return {.bytes = y.bytes()}; }
};

}  // namespace fsdp::device
