// SPDX-License-Identifier: Apache-2.0
/// @file
/// Division of work and scratch among the threads of a stream. It depends only on the number of threads and the sizes.
/// All functions restore the calling thread's OpenMP settings.
#pragma once

#include <algorithm>
#include <cstdint>
#include <type_traits>

#include <omp.h>

#include <tessera/fsdp/core/checked.hpp>
#include <tessera/fsdp/core/dtype.hpp>
#include <tessera/fsdp/core/tensor.hpp>
#include <tessera/fsdp/device/cpu.hpp>

#include "kernels/tables.hpp"

namespace fsdp::device::cpu {

/// Sets the OpenMP team size of the calling thread for a scope, for libraries that read it from there.
class TeamSize {
 public:
  explicit TeamSize(int threads) {
    if (threads != before_) omp_set_num_threads(threads);
  }
  TeamSize(const TeamSize&) = delete;
  TeamSize& operator=(const TeamSize&) = delete;
  ~TeamSize() {
    if (omp_get_max_threads() != before_) omp_set_num_threads(before_);
  }

 private:
  int before_ = omp_get_max_threads();
};

/// Assigns byte offsets in one thread's scratch, each a multiple of `alignment`.
class ScratchLayout {
 public:
  std::int64_t place(std::int64_t count, std::int64_t element_bytes) {
    const std::int64_t offset = bytes_;
    bytes_ += round_up(count * element_bytes, alignment);
    return offset;
  }
  std::int64_t bytes() const { return bytes_; }

 private:
  std::int64_t bytes_ = 0;
};

/// Work that touches fewer bytes than this runs on one thread: waking the team would cost more.
inline constexpr std::int64_t bytes_worth_a_team = 65536;

/// The range [0, count), which is divided into one part per thread at multiples of `step`.
struct Division {
  std::int64_t count = 0;
  std::int64_t step = 1;
  std::int64_t bytes = 0;  ///< bytes of memory that all parts access together
};

/// Calls body(begin, end, part) for each part that is not empty. With one thread or little work, enters no parallel
/// region.
template <class Body>
void for_parts(const Cpu::Stream& stream, const Division& division, const Body& body) {
  const int threads = stream.threads();
  const std::int64_t length = round_up(ceil_divide(division.count, threads), division.step);
  const auto run = [&](int part) {
    const std::int64_t begin = std::min(part * length, division.count);
    const std::int64_t end = std::min(begin + length, division.count);
    if (begin < end) body(begin, end, part);
  };
  if (threads == 1 || division.bytes < bytes_worth_a_team) {
    for (int part = 0; part < threads; ++part) run(part);
    return;
  }
#pragma omp parallel num_threads(threads)
  for (int part = omp_get_thread_num(); part < threads; part += omp_get_num_threads()) run(part);
}

/// Calls body(index) for every index of [0, count).
template <class Body>
void for_rows(const Cpu::Stream& stream, std::int64_t count, std::int64_t bytes, const Body& body) {
  for_parts(stream, {.count = count, .step = 1, .bytes = bytes}, [&](std::int64_t begin, std::int64_t end, int) {
    for (std::int64_t row = begin; row < end; ++row) body(row);
  });
}

/// Calls body(row, begin, end) so that every element of a matrix is covered once. A contiguous matrix is treated as one
/// long row.
template <class Body>
void for_pieces(const Cpu::Stream& stream, const Shape& shape, bool contiguous, std::int64_t bytes, const Body& body) {
  if (!contiguous && shape[1] > 0)
    return for_rows(stream, shape[0], bytes, [&](std::int64_t row) { body(row, 0, shape[1]); });
  for_parts(stream, {.count = shape.numel(), .step = 64, .bytes = bytes},
            [&](std::int64_t begin, std::int64_t end, int) { body(0, begin, end); });
}

/// Calls body(data..., count) for pieces of tensors of one shape, which cover every element once. A tensor may be empty
/// instead; its data is then null.
template <class Body, class First, class... T>
void for_elements(const Cpu::Stream& stream, std::int64_t bytes, const Body& body, const Tensor<First>& first,
                  const Tensor<T>&... others) {
  for_pieces(stream, first.shape(), (first.contiguous() && ... && others.contiguous()), bytes,
             [&](std::int64_t row, std::int64_t begin, std::int64_t end) {
               const auto at = [&](const auto& x) { return x.numel() == 0 ? nullptr : x.row(row) + begin; };
               body(at(first), at(others)..., end - begin);
             });
}

/// The rows of sum_rows' scratch: a chunk per thread and, if several threads compute a result, a sum per thread.
inline Shape row_sums_shape(std::int64_t threads, std::int64_t columns, bool wanted) {
  return {(threads > 1 && wanted ? 2 : 1) * threads, round_up(columns, 16)};
}
inline std::int64_t row_sums_scratch(std::int64_t threads, std::int64_t columns, bool wanted = true) {
  return row_sums_shape(threads, columns, wanted).numel() * std::int64_t{sizeof(float)};
}

/// Sums rows into `result` [columns]. Rows are added into chunks, chunks into one sum per thread, and these sums into
/// the result in thread order: a single float sum would lose precision over long sequences. body(row, count, chunk)
/// must add rows [row, row + count) to chunk[columns]. If `result` has no memory, chunks are computed and discarded.
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

/// Returns the model weights that a kernel writes: none in float, in which the main weights are the model's.
inline bf16* rounded(bf16* model) { return model; }
inline bf16* rounded(float*) { return nullptr; }

/// Rewrites the model's weights in a skipped step.
template <class Model>
void round_again(Cpu::Stream& stream, const Tensor<float>& main, const Tensor<Model>& model) {
  if constexpr (!std::is_same_v<Model, float>)
    if (model.numel() > 0) run(stream, Copy<float, Model>{.x = main, .y = model});
}

}  // namespace fsdp::device::cpu
