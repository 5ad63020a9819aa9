// SPDX-License-Identifier: Apache-2.0
/// @file
/// Shape checks that several operations share.
#pragma once

#include <string_view>

#include <tessera/fsdp/core/error.hpp>
#include <tessera/fsdp/core/tensor.hpp>

namespace fsdp::device {

/// Throws LogicError, which names the operation, unless both tensors have the same shape.
template <class X, class Y>
void require_same_shape(std::string_view operation, const Tensor<X>& x, const Tensor<Y>& y) {
  require(x.shape() == y.shape(), operation, ": tensors of ", x.numel(), " and ", y.numel(),
          " elements; both must have one shape");
}

}  // namespace fsdp::device
