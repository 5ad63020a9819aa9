// SPDX-License-Identifier: Apache-2.0
/// @file
/// What tests of Cuda share: matrices that go to the device and come back, sizes, bounds.
///
/// The same tests run on a GPU, and on the host with kernels emulated (tests/support/cuda_emulation).
#pragma once

#include <tessera/fsdp/device/cuda.hpp>
#include <tessera/fsdp/device/operations.hpp>

#include "reference.hpp"

/// Ends a test where there is no device, and says why.
#define FSDP_NEEDS_DEVICE() \
  if (const std::string problem = cuda_problem(); !problem.empty()) GTEST_SKIP() << problem

namespace fsdp::device::reference {

/// A stream and its scratch on the device.
struct CudaRank {
  explicit CudaRank(bool plain = false, std::int64_t scratch = 1 << 20)
      : arena(ledger, scratch), stream(arena, 1, plain) {}
  Ledger ledger;
  Cuda::Arena arena;
  Cuda::Stream stream;
};

/// A copy of a host matrix on the device, gaps included, `offset` elements behind an aligned address.
template <class T>
class OnDevice {
 public:
  OnDevice(CudaRank& rank, Matrix<T>& host, std::int64_t offset = 0)
      : rank_(&rank),
        host_(&host),
        block_(rank.ledger, MemoryKind::activations, (elements() + offset) * static_cast<std::int64_t>(sizeof(T))),
        data_(reinterpret_cast<T*>(block_.data()) + offset) {
    Cuda::move(rank.stream, bytes(host.view().data()), bytes(data_), size());
  }
  OnDevice(CudaRank& rank, const Matrix<T>& host, std::int64_t offset = 0)
      : OnDevice(rank, const_cast<Matrix<T>&>(host), offset) {}

  Tensor<T> view() const {
    return Tensor<T>::strided(data_, host_->view().rows(), host_->view().columns(), host_->view().row_stride());
  }
  Tensor<const T> input() const { return view(); }
  Tensor<T> vector() const { return {data_, {host_->view().columns()}}; }
  Tensor<const T> vector_input() const { return vector(); }

  /// The host's matrix, as the device's is once all that was queued is done.
  Matrix<T>& back() const {
    Cuda::move(rank_->stream, bytes(data_), bytes(host_->view().data()), size());
    rank_->stream.synchronize();
    return *host_;
  }

 private:
  static std::byte* bytes(T* data) { return reinterpret_cast<std::byte*>(data); }
  std::int64_t elements() const { return host_->view().rows() * host_->view().row_stride(); }
  std::int64_t size() const { return elements() * static_cast<std::int64_t>(sizeof(T)); }

  CudaRank* rank_;
  Matrix<T>* host_;
  Block<Cuda> block_;
  T* data_;
};

/// Numbers that are not floats, on the device.
template <class T>
class NumbersOnDevice {
 public:
  NumbersOnDevice(CudaRank& rank, const std::vector<T>& numbers)
      : rank_(&rank), numbers_(numbers), block_(rank.ledger, MemoryKind::activations, size()) {
    Cuda::move(rank.stream, reinterpret_cast<const std::byte*>(numbers_.data()), block_.data(), size());
    rank.stream.synchronize();
  }
  Tensor<T> view() const { return {reinterpret_cast<T*>(block_.data()), {static_cast<std::int64_t>(numbers_.size())}}; }
  std::vector<T> back() const {
    std::vector<T> found(numbers_.size());
    Cuda::move(rank_->stream, block_.data(), reinterpret_cast<std::byte*>(found.data()), size());
    rank_->stream.synchronize();
    return found;
  }

 private:
  std::int64_t size() const { return static_cast<std::int64_t>(numbers_.size() * sizeof(T)); }
  CudaRank* rank_;
  std::vector<T> numbers_;
  Block<Cuda> block_;
};

/// Largest error of arithmetic in float and one rounding to T, relative to a tensor's largest entry.
template <class T>
constexpr double cuda_tolerance() {
  return std::is_same_v<T, float> ? 1e-5 : std::is_same_v<T, bf16> ? 1.0 / 256 : 1.0 / 1024;
}

/// body(T(), plain) for every element type, with both variants of the kernels.
template <class Body>
void for_types_and_variants(const Body& body) {
  for (const bool plain : {false, true}) {
    body(float(), plain);
    body(bf16(), plain);
    body(f16(), plain);
  }
}

struct CudaCase {
  std::int64_t rows, columns, gap, offset;
};
/// Odd sizes, rows with gaps, and addresses that only single elements can be read from.
inline std::vector<CudaCase> cuda_cases() {
  return {{1, 1, 0, 0},  {3, 7, 1, 0},   {2, 31, 0, 1},   {5, 33, 0, 0},    {4, 64, 0, 0},    {4, 64, 8, 0},
          {4, 64, 3, 0}, {3, 257, 0, 3}, {2, 1023, 0, 0}, {67, 1031, 3, 0}, {260, 264, 0, 0}, {5, 1024, 16, 8}};
}

}  // namespace fsdp::device::reference
