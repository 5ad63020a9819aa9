// SPDX-License-Identifier: Apache-2.0
/// @file
/// Shared by the tests of Cuda: matrices that are copied to the device and back, sizes, and error bounds.
///
/// The same tests run on a GPU, and on the host with kernels emulated (tests/support/cuda_emulation).
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <string>
#include <type_traits>
#include <utility>
#include <vector>

#include <tessera/fsdp/device/cuda.hpp>
#include <tessera/fsdp/device/operations.hpp>

#include "reference.hpp"

/// Skips a test with a reason if there is no device.
#define FSDP_NEEDS_DEVICE() \
  if (const std::string problem = cuda_problem(); !problem.empty()) GTEST_SKIP() << problem

namespace fsdp::device::reference {

struct CudaRank;

/// A copy of a host matrix on the device, including gaps, `offset` elements after an aligned address.
template <class T>
class OnDevice {
 public:
  OnDevice(CudaRank& rank, Matrix<T> host, std::int64_t offset = 0);

  Tensor<T> view() const {
    return Tensor<T>::strided(data_, host_.view().rows(), host_.view().columns(), host_.view().row_stride());
  }
  Tensor<T> tensor() const { return host_.is_vector() ? Tensor<T>(data_, {host_.view().columns()}) : view(); }
  operator Tensor<T>() const { return tensor(); }
  operator Tensor<const T>() const { return tensor(); }

  /// Waits for all queued work, copies the matrix back and returns the host's copy.
  Matrix<T>& back() const;
  Values values() const { return back().values(); }
  bool gaps_untouched() const { return back().gaps_untouched(); }

 private:
  static std::byte* bytes(T* data) { return reinterpret_cast<std::byte*>(data); }
  std::int64_t elements() const { return host_.view().rows() * host_.view().row_stride(); }
  std::int64_t size() const { return elements() * static_cast<std::int64_t>(sizeof(T)); }

  CudaRank* rank_;
  mutable Matrix<T> host_;
  Block<Cuda> block_;
  T* data_;
};

/// A list of numbers of any type, on the device.
template <class T>
class NumbersOnDevice {
 public:
  NumbersOnDevice(CudaRank& rank, std::vector<T> numbers);
  Tensor<T> shaped(const Shape& shape) const { return {reinterpret_cast<T*>(block_.data()), shape}; }
  Tensor<T> view() const { return shaped({std::ssize(numbers_)}); }
  operator Tensor<T>() const { return view(); }
  operator Tensor<const T>() const { return view(); }
  std::vector<T> back() const;

 private:
  std::int64_t size() const { return static_cast<std::int64_t>(numbers_.size() * sizeof(T)); }
  CudaRank* rank_;
  std::vector<T> numbers_;
  Block<Cuda> block_;
};

/// A stream and its scratch on the device.
struct CudaRank {
  template <class T>
  using Held = OnDevice<T>;
  template <class T>
  using Listed = NumbersOnDevice<T>;
  /// Largest error of arithmetic in float and one rounding to T, relative to a tensor's largest entry.
  template <class T>
  static constexpr double tolerance = std::is_same_v<T, float>  ? 1e-5
                                      : std::is_same_v<T, bf16> ? 1.0 / 256
                                                                : 1.0 / 1024;
  static constexpr double norm_tolerances = 1;
  static constexpr double sums_tolerance(std::int64_t) { return 1e-5; }
  static constexpr double loss_tolerance = 1e-6;

  explicit CudaRank(bool plain = false, std::int64_t scratch = 1 << 20)
      : arena(ledger, scratch), stream(arena, 1, plain) {}
  explicit CudaRank(const Case& c, std::int64_t scratch = 1 << 20) : CudaRank(c.plain, scratch) {}

  static std::vector<Case> variants() { return {{.plain = false}, {.plain = true}}; }
  /// Odd sizes, rows with gaps, and addresses that are aligned to single elements only.
  static std::vector<Case> cases() {
    using Sizes = std::array<std::int64_t, 4>;  // rows, columns, gap, offset
    constexpr Sizes all[] = {{1, 1, 0, 0},    {3, 7, 1, 0},     {2, 31, 0, 1},    {5, 33, 0, 0},
                             {4, 64, 0, 0},   {4, 64, 8, 0},    {4, 64, 3, 0},    {3, 257, 0, 3},
                             {2, 1023, 0, 0}, {67, 1031, 3, 0}, {260, 264, 0, 0}, {5, 1024, 16, 8}};
    std::vector<Case> list;
    for (const bool plain : {false, true})
      for (const auto& [rows, columns, gap, offset] : all)
        list.push_back({.rows = rows, .columns = columns, .gap = gap, .offset = offset, .plain = plain});
    return list;
  }

  Ledger ledger;
  Cuda::Arena arena;
  Cuda::Stream stream;
};

template <class T>
OnDevice<T>::OnDevice(CudaRank& rank, Matrix<T> host, std::int64_t offset)
    : rank_(&rank),
      host_(std::move(host)),
      block_(rank.ledger, MemoryKind::activations, (elements() + offset) * static_cast<std::int64_t>(sizeof(T))),
      data_(reinterpret_cast<T*>(block_.data()) + offset) {
  Cuda::move(rank.stream, bytes(host_.view().data()), bytes(data_), size());
}
template <class T>
Matrix<T>& OnDevice<T>::back() const {
  Cuda::move(rank_->stream, bytes(data_), bytes(host_.view().data()), size());
  rank_->stream.synchronize();
  return host_;
}

template <class T>
NumbersOnDevice<T>::NumbersOnDevice(CudaRank& rank, std::vector<T> numbers)
    : rank_(&rank), numbers_(std::move(numbers)), block_(rank.ledger, MemoryKind::activations, size()) {
  Cuda::move(rank.stream, reinterpret_cast<const std::byte*>(numbers_.data()), block_.data(), size());
  rank.stream.synchronize();
}
template <class T>
std::vector<T> NumbersOnDevice<T>::back() const {
  std::vector<T> found(numbers_.size());
  Cuda::move(rank_->stream, block_.data(), reinterpret_cast<std::byte*>(found.data()), size());
  rank_->stream.synchronize();
  return found;
}

/// body(T()) for every element type.
template <class Body>
void for_types(const Body& body) {
  body(float());
  body(bf16());
  body(f16());
}

}  // namespace fsdp::device::reference
