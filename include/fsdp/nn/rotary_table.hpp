// SPDX-License-Identifier: Apache-2.0
/// @file
/// The rotary positions that all blocks of a model read.
#pragma once

#include <fsdp/core/tensor.hpp>

namespace fsdp::nn {

/// Positions count from the start of a document.
struct RotaryTable {
  Tensor<const float> table;  ///< [sequence_length, head_dim]: cos of each pair, then sin
};

}  // namespace fsdp::nn
