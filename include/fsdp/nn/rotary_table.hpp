// SPDX-License-Identifier: Apache-2.0
/// @file
/// The rotary positions that all blocks of a model read.
#pragma once

#include <tessera/fsdp/core/tensor.hpp>

namespace fsdp::nn {

/// Cosines and sines of rotary positions, which count from the start of a document.
struct RotaryTable {
  /// [sequence_length, head_dim]: cosines of all pairs, then sines. In a decoding pass [sequences, head_dim]: one row
  /// per sequence, for the position of its new token.
  Tensor<const float> table;
};

}  // namespace fsdp::nn
