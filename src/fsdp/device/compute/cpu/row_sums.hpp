// SPDX-License-Identifier: Apache-2.0
/// @file
/// Sums over the rows of a matrix by several threads. Rows are added into chunks, chunks into one sum per thread, and
/// these sums into the result in thread order. A single float sum would lose precision over long sequences.
#pragma once

#include <algorithm>
#include <cstdint>

#include <tessera/fsdp/core/checked.hpp>
#include <tessera/fsdp/device/compute/cpu.hpp>

#include "kernels/tables.hpp"

namespace fsdp::device::cpu {

class RowSums {
 public:
  static constexpr std::int64_t chunk_rows = 128;

  /// Returns the scratch bytes: a chunk per thread and, if several threads compute a result, a sum per thread.
  static std::int64_t scratch(std::int64_t threads, std::int64_t columns, bool wanted = true) {
    return (threads > 1 && wanted ? 2 : 1) * threads * stride(columns) * std::int64_t{sizeof(float)};
  }

  /// `result`: [columns]; if it has no memory, chunks are computed and discarded.
  RowSums(int threads, Tensor<float> result, Write write, Scratch memory)
      : threads_(threads),
        columns_(result.numel()),
        wanted_(result.data() != nullptr),
        result_(result.data()),
        parts_(memory.as<float>({(threads > 1 && wanted_ ? 2 : 1) * threads, stride(columns_)})) {
    if (wanted_ && write == Write::overwrite) std::fill_n(result_, columns_, 0.0f);
    std::fill_n(parts_.data(), parts_.numel(), 0.0f);
  }

  /// Adds rows [begin, end): body(row, rows, chunk) must add rows [row, row + rows) to chunk[columns].
  template <class Body>
  void add(std::int64_t begin, std::int64_t end, int thread, const Body& body) const {
    float* const chunk = parts_.row(thread);
    for (std::int64_t row = begin; row < end; row += chunk_rows) {
      std::fill_n(chunk, columns_, 0.0f);
      body(row, std::min(chunk_rows, end - row), chunk);
      if (wanted_) kernels<ElementwiseKernels>().of<float>().add(chunk, sum_of(thread), columns_);
    }
  }

  void finish() const {
    if (threads_ == 1 || !wanted_) return;
    for (int thread = 0; thread < threads_; ++thread)
      kernels<ElementwiseKernels>().of<float>().add(sum_of(thread), result_, columns_);
  }

 private:
  static std::int64_t stride(std::int64_t columns) { return round_up(columns, 16); }
  float* sum_of(int thread) const { return threads_ == 1 ? result_ : parts_.row(threads_ + thread); }

  int threads_;
  std::int64_t columns_;
  bool wanted_;
  float* result_;
  Tensor<float> parts_;
};

}  // namespace fsdp::device::cpu
