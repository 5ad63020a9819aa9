// SPDX-License-Identifier: Apache-2.0
/// @file
/// Shared by the tests of operations: matrices with gaps between rows, references in float64, comparisons, and the
/// ranks and cases of the CPU.
///
/// A check of an operation is a template over the rank (Rank here, CudaRank in cuda_reference.hpp), so that all devices
/// pass the same checks. CPU kernels are tested for the instruction set detected at start; run the suite with
/// TESSERA_ISA=baseline and =avx2 for the others.
#pragma once

#include <algorithm>
#include <cstdint>
#include <limits>
#include <span>
#include <string>
#include <type_traits>
#include <utility>
#include <vector>

#include <gtest/gtest.h>

#include <tessera/fsdp/device/cpu.hpp>
#include <tessera/fsdp/device/operations.hpp>
#include <tessera/fsdp/testing/guarded.hpp>

#include <support/sanitizer.hpp>

#include "float64.hpp"

namespace fsdp::device::reference {

using fsdp::testing::number_at;

/// All elements, row by row.
template <class T>
Values values_of(Tensor<T> view) {
  Values values;
  for (std::int64_t row = 0; row < view.rows(); ++row)
    for (const T& value : std::span(view.row(row), static_cast<std::size_t>(view.columns())))
      values.push_back(static_cast<double>(static_cast<float>(value)));
  return values;
}

/// Owns a matrix [rows, columns] with `gap` elements between rows, or a vector; converts to the tensor type of
/// operations. Elements start as NaN, gaps as 77.
template <class T>
class Matrix {
 public:
  Matrix(std::int64_t rows, std::int64_t columns, std::int64_t gap = 0)
      : rows_(rows), columns_(columns), gap_(gap), data_(static_cast<std::size_t>(rows * (columns + gap)), T(77.0f)) {
    set([](std::int64_t) { return std::numeric_limits<double>::quiet_NaN(); });
  }
  static Matrix random(std::uint64_t seed, std::int64_t rows, std::int64_t columns, std::int64_t gap = 0,
                       double scale = 1) {
    Matrix matrix(rows, columns, gap);
    matrix.set([=](std::int64_t i) { return scale * number_at(seed, i); });
    return matrix;
  }
  static Matrix numbers(std::int64_t count) {
    Matrix matrix(1, count);
    matrix.is_vector_ = true;
    return matrix;
  }
  static Matrix random_numbers(std::uint64_t seed, std::int64_t count, double scale = 1) {
    Matrix matrix = random(seed, 1, count, 0, scale);
    matrix.is_vector_ = true;
    return matrix;
  }

  Tensor<T> view() { return Tensor<T>::strided(data_.data(), rows_, columns_, columns_ + gap_); }
  Tensor<const T> view() const { return Tensor<const T>::strided(data_.data(), rows_, columns_, columns_ + gap_); }
  Tensor<const T> input() const { return view(); }
  /// A matrix of one row as a tensor of rank 1.
  Tensor<T> vector() { return {data_.data(), {columns_}}; }
  Tensor<const T> vector_input() const { return {data_.data(), {columns_}}; }
  bool is_vector() const { return is_vector_; }
  Tensor<T> tensor() { return is_vector_ ? vector() : view(); }
  operator Tensor<T>() { return tensor(); }
  operator Tensor<const T>() const { return is_vector_ ? vector_input() : view(); }

  T& at(std::int64_t row, std::int64_t column) { return view().row(row)[column]; }
  template <class F>
  void set(const F& f) {
    for (std::int64_t i = 0; i < rows_ * columns_; ++i) at(i / columns_, i % columns_) = T(static_cast<float>(f(i)));
  }
  /// Sets all elements, row by row.
  template <class Number>
  void set(const std::vector<Number>& values) {
    set([at = values.begin()](std::int64_t i) { return at[i]; });
  }
  Values values() const { return values_of(view()); }
  bool gaps_untouched() const {
    for (std::int64_t row = 0; row < rows_; ++row) {
      const auto gap = std::span(view().row(row) + columns_, static_cast<std::size_t>(gap_));
      if (!std::ranges::all_of(gap, [](const T& value) { return static_cast<float>(value) == 77.0f; })) return false;
    }
    return true;
  }

 private:
  std::int64_t rows_, columns_, gap_;
  bool is_vector_ = false;
  std::vector<T> data_;
};

/// Each value rounded to T.
template <class T>
Values rounded_to(Values values) {
  for (double& value : values) value = static_cast<double>(static_cast<float>(T(static_cast<float>(value))));
  return values;
}

/// Compiled once, with optimization.
#define FSDP_MATRIX(how, T)             \
  how Values values_of(Tensor<T> view); \
  how class Matrix<T>;                  \
  how Values rounded_to<T>(Values values);
FSDP_MATRIX(extern template, float)
FSDP_MATRIX(extern template, bf16)

/// Largest error of float arithmetic and one rounding to T, relative to the tensor's largest entry.
template <class T>
constexpr double tolerance() {
  return std::is_same_v<T, float> ? 2e-6 : 1.0 / 256;
}

/// Sizes of a test case, the memory layout of its rows, and the variant that computes it.
struct Case {
  std::int64_t rows = 1, columns = 1, gap = 0;
  int threads = 1;          ///< CPU only
  std::int64_t offset = 0;  ///< Cuda only: elements after an aligned address
  bool plain = false;       ///< Cuda only: selects the plain kernels

  std::string text() const {
    return message(rows, " x ", columns, ", gap ", gap, ", threads ", threads, ", offset ", offset,
                   plain ? ", plain" : "");
  }
};

/// Threads per rank. ThreadSanitizer does not understand libgomp's barriers, so there it is one.
inline std::vector<int> team_sizes() { return test::thread_sanitizer ? std::vector{1} : std::vector{1, 2, 3}; }

struct Rank;

/// A matrix in the memory of a rank, with access to its values after operations.
template <class T>
struct OnHost : Matrix<T> {
  OnHost(Rank&, Matrix<T> matrix, std::int64_t /*offset*/ = 0) : Matrix<T>(std::move(matrix)) {}
  Matrix<T>& back() { return *this; }
};

/// The same for a list of numbers of any type.
template <class T>
class NumbersOnHost {
 public:
  NumbersOnHost(Rank&, std::vector<T> numbers) : numbers_(std::move(numbers)) {}
  Tensor<T> shaped(const Shape& shape) const { return {numbers_.data(), shape}; }
  Tensor<T> view() const { return shaped({std::ssize(numbers_)}); }
  operator Tensor<T>() const { return view(); }
  operator Tensor<const T>() const { return view(); }
  std::vector<T> back() const { return numbers_; }

 private:
  mutable std::vector<T> numbers_;
};

/// The memory and stream of one rank.
struct Rank {
  template <class T>
  using Held = OnHost<T>;
  template <class T>
  using Listed = NumbersOnHost<T>;
  template <class T>
  static constexpr double tolerance = reference::tolerance<T>();
  static constexpr double norm_tolerances =
      2;  ///< tolerance of norms in units of `tolerance`: their scale is rounded too
  /// Tolerance of float sums over rows, relative to the largest sum.
  static constexpr double sums_tolerance(std::int64_t rows) { return rows > 60 ? 2e-6 : 4e-6; }
  static constexpr double loss_tolerance = 1e-7;

  explicit Rank(int threads, std::int64_t bytes = 1 << 18) : arena(ledger, bytes), stream(arena, threads) {}
  explicit Rank(const Case& c, std::int64_t bytes = 1 << 18) : Rank(c.threads, bytes) {}

  /// All variants of the computation, with one size.
  static std::vector<Case> variants() {
    std::vector<Case> list;
    for (const int threads : team_sizes()) list.push_back({.threads = threads});
    return list;
  }
  /// Sizes that fill vector registers and sizes that do not; the largest is big enough for a team of threads.
  static std::vector<Case> cases() {
    std::vector<Case> list;
    for (const int threads : team_sizes()) {
      for (const std::int64_t columns : {1, 3, 7, 15, 16, 257})
        for (const std::int64_t gap : {0, 5}) list.push_back({columns % 4 + 1, columns, gap, threads});
      list.push_back({67, 1031, threads == 2 ? 3 : 0, threads});
    }
    return list;
  }

  Ledger ledger;
  Cpu::Arena arena;
  Cpu::Stream stream;
};

/// Matrices and lists in the memory of a rank of any device.
/// @{
template <class R, class T>
using Held = typename R::template Held<T>;
template <class R, class T>
using Listed = typename R::template Listed<T>;
/// @}

}  // namespace fsdp::device::reference
