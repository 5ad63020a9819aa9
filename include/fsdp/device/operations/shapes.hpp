// SPDX-License-Identifier: Apache-2.0
/// @file
/// What several operations check of their shapes.
#pragma once

#include <string_view>

#include <fsdp/core/error.hpp>
#include <fsdp/core/tensor.hpp>

namespace fsdp::device {

/// Throws LogicError, which names the operation.
template <class X, class Y>
void require_same_shape(std::string_view operation, const Tensor<X>& x, const Tensor<Y>& y) {
  require(x.shape() == y.shape(), operation, ": tensors of ", x.numel(), " and ", y.numel(),
          " elements; both must have one shape");
}

}  // namespace fsdp::device
