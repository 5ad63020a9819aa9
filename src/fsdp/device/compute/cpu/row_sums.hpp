// SPDX-License-Identifier: Apache-2.0
/// @file
/// Sums over the rows of a matrix by several threads. Rows are added into chunks, chunks into one sum per thread, and
/// these sums into the result in thread order. A single float sum would lose precision over long sequences.
#pragma once

#include <algorithm>
#include <cstdint>

#include <tessera/fsdp/core/checked.hpp>
#include <tessera/fsdp/device/compute/cpu.hpp>

#include "../../cpu/threads.hpp"
#include "kernels/tables.hpp"

namespace fsdp::device::cpu {

/// The rows of sum_rows' scratch: a chunk per thread and, if several threads compute a result, a sum per thread.
inline Shape row_sums_shape(std::int64_t threads, std::int64_t columns, bool wanted) {
  return {(threads > 1 && wanted ? 2 : 1) * threads, round_up(columns, 16)};
}
inline std::int64_t row_sums_scratch(std::int64_t threads, std::int64_t columns, bool wanted = true) {
  return row_sums_shape(threads, columns, wanted).numel() * std::int64_t{sizeof(float)};
}

/// Sums rows into `result` [columns]: body(row, count, chunk) must add rows [row, row + count) to chunk[columns]. If
/// `result` has no memory, chunks are computed and discarded.
template <class Body>
void sum_rows(const Cpu::Stream& stream, const Division& rows, const Tensor<float>& result, Write write, Scratch memory,
              const Body& body) {
  constexpr std::int64_t chunk_rows = 128;
  const auto& kernel = kernels<ElementwiseKernels>().of<float>();
  const std::int64_t threads = stream.threads(), columns = result.numel();
  const bool wanted = result.data() != nullptr;
  const auto parts = memory.as<float>(row_sums_shape(threads, columns, wanted));
  const auto sum_of = [&](std::int64_t thread) { return threads == 1 ? result.data() : parts.row(threads + thread); };
  if (wanted && write == Write::overwrite) std::fill_n(result.data(), columns, 0.0f);
  std::fill_n(parts.data(), parts.numel(), 0.0f);
  for_parts(stream, rows, [&](std::int64_t begin, std::int64_t end, int thread) {
    float* const chunk = parts.row(thread);
    for (std::int64_t row = begin; row < end; row += chunk_rows) {
      std::fill_n(chunk, columns, 0.0f);
      body(row, std::min(chunk_rows, end - row), chunk);
      if (wanted) kernel.add(chunk, sum_of(thread), columns);
    }
  });
  for (std::int64_t thread = 0; threads > 1 && wanted && thread < threads; ++thread)
    kernel.add(sum_of(thread), result.data(), columns);
}

}  // namespace fsdp::device::cpu
