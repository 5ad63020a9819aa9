// SPDX-License-Identifier: Apache-2.0
/// @file
/// Division of work among the threads of a stream. It depends only on the number of threads and the sizes. All
/// functions restore the calling thread's OpenMP settings.
#pragma once

#include <algorithm>
#include <cstdint>
#include <type_traits>

#include <omp.h>

#include <tessera/fsdp/core/checked.hpp>
#include <tessera/fsdp/core/dtype.hpp>
#include <tessera/fsdp/core/tensor.hpp>
#include <tessera/fsdp/device/cpu.hpp>

namespace fsdp::device::cpu {

/// Sets the OpenMP team size of the calling thread for a scope, for libraries that read it from there.
class TeamSize {
 public:
  explicit TeamSize(int threads) : before_(omp_get_max_threads()), changed_(threads != before_) {
    if (changed_) omp_set_num_threads(threads);
  }
  TeamSize(const TeamSize&) = delete;
  TeamSize& operator=(const TeamSize&) = delete;
  ~TeamSize() {
    if (changed_) omp_set_num_threads(before_);
  }

 private:
  int before_;
  bool changed_;
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

/// Calls body(row, begin, end) so that every element of a matrix is covered once. A contiguous matrix is treated as one
/// long row.
template <class Body>
void for_elements(const Cpu::Stream& stream, const Shape& shape, bool contiguous, std::int64_t bytes,
                  const Body& body) {
  if (contiguous) {
    const Division elements{.count = shape.numel(), .step = 64, .bytes = bytes};
    for_parts(stream, elements, [&](std::int64_t begin, std::int64_t end, int) { body(0, begin, end); });
    return;
  }
  const Division rows{.count = shape[0], .step = 1, .bytes = bytes};
  for_parts(stream, rows, [&](std::int64_t begin, std::int64_t end, int) {
    for (std::int64_t row = begin; row < end; ++row) body(row, 0, shape[1]);
  });
}

/// Calls body(begin, count) for the range of each thread.
template <class Body>
void for_ranges(const Cpu::Stream& stream, std::int64_t count, std::int64_t bytes, const Body& body) {
  for_parts(stream, {.count = count, .step = 64, .bytes = bytes},
            [&](std::int64_t begin, std::int64_t end, int) { body(begin, end - begin); });
}

template <class T>
T* at(const Tensor<T>& tensor, std::int64_t begin) {
  return tensor.numel() == 0 ? nullptr : tensor.data() + begin;
}

inline bf16* rounded(const Tensor<bf16>& model, std::int64_t begin) { return at(model, begin); }
inline bf16* rounded(const Tensor<float>&, std::int64_t) { return nullptr; }

/// Rewrites the model's weights in a skipped step.
template <class Model>
void round_again(Cpu::Stream& stream, const Tensor<float>& main, const Tensor<Model>& model) {
  if constexpr (!std::is_same_v<Model, float>)
    if (model.numel() > 0) run(stream, Copy<float, Model>{.x = main, .y = model});
}

}  // namespace fsdp::device::cpu
