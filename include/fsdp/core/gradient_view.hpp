// SPDX-License-Identifier: Apache-2.0
/// @file
/// A gradient's memory and the mode of its first write.
#pragma once

#include <cstdint>
#include <utility>

#include <tessera/fsdp/core/tensor.hpp>

namespace fsdp {

/// A weight gradient's memory, and the flag that says whether it was written since the last reduction.
template <class T>
struct GradientView {
  Tensor<T> tensor;
  bool* written = nullptr;

  /// Returns false for a frozen weight, whose gradient has a shape but no memory: skip its computation.
  bool wanted() const { return tensor.data() != nullptr; }
  /// Returns rows [begin, end). `part_written`: a separate flag for this part.
  GradientView rows(std::int64_t begin, std::int64_t end, bool* part_written) const {
    return {wanted() ? tensor.slice(begin, end) : Tensor<T>(nullptr, {end - begin, tensor.columns()}), part_written};
  }
  /// Returns columns [begin, end). `part_written`: a separate flag for this part.
  GradientView columns(std::int64_t begin, std::int64_t end, bool* part_written) const {
    return {wanted() ? tensor.slice_columns(begin, end) : Tensor<T>(nullptr, {tensor.rows(), end - begin}),
            part_written};
  }

  /// Returns the mode of the next write and sets the flag: the first write overwrites (beta = 0), later writes add
  /// (beta = 1).
  Write next() const { return std::exchange(*written, true) ? Write::accumulate : Write::overwrite; }
};

}  // namespace fsdp
