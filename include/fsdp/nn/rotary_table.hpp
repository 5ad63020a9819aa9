// SPDX-License-Identifier: Apache-2.0
/// @file
/// The rotary positions that all blocks of a model read.
#pragma once

#include <fsdp/core/tensor.hpp>

namespace fsdp::nn {

/// Positions count from the start of a document.
struct RotaryTable {
  /// [sequence_length, head_dim]: cos of each pair, then sin. Of sequences that go on [sequences, head_dim]: the row of
  /// each one's position.
  Tensor<const float> table;
};

}  // namespace fsdp::nn
