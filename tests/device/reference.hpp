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
#include <cmath>
#include <cstdint>
#include <functional>
#include <limits>
#include <numeric>
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

namespace fsdp::device::reference {

using Values = std::vector<double>;

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

/// Largest error of float arithmetic and one rounding to T, relative to the tensor's largest entry.
template <class T>
constexpr double tolerance() {
  return std::is_same_v<T, float> ? 2e-6 : 1.0 / 256;
}

/// The largest difference, relative to the largest expected magnitude; infinite if any value is NaN.
inline double difference(const Values& found, const Values& expected) {
  if (found.size() != expected.size()) return std::numeric_limits<double>::infinity();
  double most = 0, largest = 1e-30;
  for (auto at = found.begin(); const double value : expected) {
    const double error = std::abs(*at++ - value);
    if (!(error <= 1e300)) return std::numeric_limits<double>::infinity();
    most = std::max(most, error);
    largest = std::max(largest, std::abs(value));
  }
  return most / largest;
}

/// The L2 norms of found - expected and of expected; infinite if the sizes differ.
inline std::pair<double, double> error_and_norm(const Values& found, const Values& expected) {
  constexpr double infinity = std::numeric_limits<double>::infinity();
  if (found.size() != expected.size()) return {infinity, 0};
  double error = 0, norm = 0;
  for (auto at = found.begin(); const double value : expected) {
    error += (*at - value) * (*at - value);
    norm += value * value;
    ++at;
  }
  return {std::sqrt(error), std::sqrt(norm)};
}

/// The gradient of a function of x, by central differences in float64.
inline Values finite_differences(const std::function<double(const Values&)>& f, Values x) {
  constexpr double step = 1e-5;
  Values gradient;
  for (double& value : x) {
    const double at = value;
    value = at + step;
    const double above = f(x);
    value = at - step;
    gradient.push_back((above - f(x)) / (2 * step));
    value = at;
  }
  return gradient;
}

inline double dot(const Values& a, const Values& b) { return std::inner_product(a.begin(), a.end(), b.begin(), 0.0); }

inline Values plus(Values a, const Values& b) {
  std::transform(a.begin(), a.end(), b.begin(), a.begin(), std::plus());
  return a;
}

/// alpha x + beta y.
inline Values combined(double alpha, Values x, double beta, const Values& y) {
  std::transform(x.begin(), x.end(), y.begin(), x.begin(), [=](double a, double b) { return alpha * a + beta * b; });
  return x;
}

/// 1 / sqrt(mean(x^2) + eps) for each row of `columns` elements.
inline Values rstd_reference(const Values& x, std::size_t columns, double eps) {
  Values rstd;
  for (auto row = x.begin(); row < x.end(); row += static_cast<std::ptrdiff_t>(columns)) {
    const double squares = std::inner_product(row, row + static_cast<std::ptrdiff_t>(columns), row, 0.0);
    rstd.push_back(1 / std::sqrt(squares / static_cast<double>(columns) + eps));
  }
  return rstd;
}

inline Values norm_reference(const Values& x, const Values& w, double eps) {
  const Values rstd = rstd_reference(x, w.size(), eps);
  Values y = x;
  for (std::size_t i = 0; i < x.size(); ++i) y[i] *= rstd[i / w.size()] * w[i % w.size()];
  return y;
}

struct NormGradients {
  Values dx, dw;
};
inline NormGradients norm_gradients(const Values& x, const Values& w, const Values& dy, double eps) {
  const Values rstd = rstd_reference(x, w.size(), eps);
  const auto columns = static_cast<double>(w.size());
  NormGradients found{.dx = Values(x.size()), .dw = Values(w.size())};
  Values means(rstd.size());  // of dy * w * x * rstd
  for (std::size_t i = 0; i < x.size(); ++i) {
    means[i / w.size()] += dy[i] * w[i % w.size()] * x[i] * rstd[i / w.size()] / columns;
    found.dw[i % w.size()] += dy[i] * x[i] * rstd[i / w.size()];
  }
  for (std::size_t i = 0; i < x.size(); ++i) {
    const std::size_t row = i / w.size();
    found.dx[i] = rstd[row] * (dy[i] * w[i % w.size()] - x[i] * rstd[row] * means[row]);
  }
  return found;
}

/// The first token of a token's document, or of its sequence if there are no documents, computed without the code under
/// test.
inline std::int64_t first_of_document(std::span<const std::int64_t> documents, std::int64_t length,
                                      std::int64_t token) {
  std::int64_t first = token - token % length;
  for (const std::int64_t begin : documents)
    if (begin <= token) first = std::max(first, begin);
  return first;
}

/// Rotates every head of x [tokens, columns] by halves, to position(token).
template <class Position>
Values rope_reference(Values x, std::size_t columns, std::size_t head_dim, double theta, const Position& position) {
  for (std::size_t i = 0; i < x.size(); ++i) {
    if (i % head_dim >= head_dim / 2) continue;
    const double exponent = -2.0 * static_cast<double>(i % head_dim) / static_cast<double>(head_dim);
    const double angle =
        static_cast<double>(position(static_cast<std::int64_t>(i / columns))) * std::pow(theta, exponent);
    double &low = x[i], &high = x[i + head_dim / 2];
    const double before = low;
    low = before * std::cos(angle) - high * std::sin(angle);
    high = high * std::cos(angle) + before * std::sin(angle);
  }
  return x;
}

/// The summed loss of rows of logits, and its gradient. Rows with a negative target contribute nothing to either.
struct CrossEntropyReference {
  double loss = 0;
  Values gradient;
};
inline CrossEntropyReference cross_entropy_reference(const Values& logits, const std::vector<std::int32_t>& targets,
                                                     double scale) {
  CrossEntropyReference expected{.loss = 0, .gradient = logits};
  auto row = expected.gradient.begin();
  const auto columns = static_cast<std::ptrdiff_t>(logits.size() / targets.size());
  for (const std::int32_t target : targets) {
    const auto end = row + columns;
    const double most = *std::max_element(row, end);
    double sum = 0;
    for (auto at = row; at != end; ++at) sum += std::exp(*at - most);
    if (target >= 0) expected.loss += std::log(sum) + most - row[target];
    const double factor = target >= 0 ? scale : 0;
    std::transform(row, end, row, [&](double logit) { return factor * std::exp(logit - most) / sum; });
    if (target >= 0) row[target] -= factor;
    row = end;
  }
  return expected;
}

/// The product of a [m, k] and b [k, n]; `ta` and `tb` mark transposed storage.
inline Values product_reference(const Values& a, bool ta, const Values& b, bool tb, std::size_t m, std::size_t n,
                                std::size_t k) {
  Values c(m * n);
  for (std::size_t i = 0; i < c.size(); ++i)
    for (std::size_t l = 0; l < k; ++l)
      c[i] += a[ta ? l * m + i / n : i / n * k + l] * b[tb ? i % n * k + l : l * n + i % n];
  return c;
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
