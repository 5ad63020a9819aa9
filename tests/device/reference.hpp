// SPDX-License-Identifier: Apache-2.0
/// @file
/// What tests of operations share: matrices with gaps between rows, comparison with float64, finite differences.
///
/// Kernels are tested for the set that is found at start; run the suite with TESSERA_ISA=baseline and =avx2 for the
/// others.
#pragma once

#include <algorithm>
#include <cmath>
#include <cstdint>
#include <functional>
#include <limits>
#include <vector>

#include <gtest/gtest.h>

#include <tessera/fsdp/device/cpu.hpp>
#include <tessera/fsdp/device/operations.hpp>
#include <tessera/fsdp/testing/numbers.hpp>

#include <support/sanitizer.hpp>

namespace fsdp::device::reference {

using Values = std::vector<double>;

using fsdp::testing::number_at;

/// All elements, row by row.
template <class T>
Values values_of(Tensor<T> view) {
  Values values;
  for (std::int64_t row = 0; row < view.rows(); ++row)
    for (std::int64_t column = 0; column < view.columns(); ++column)
      values.push_back(static_cast<double>(static_cast<float>(view.row(row)[column])));
  return values;
}

/// Owns [rows, columns] with `gap` elements between rows. Starts as NaN everywhere, gaps as 77.
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

  Tensor<T> view() { return Tensor<T>::strided(data_.data(), rows_, columns_, columns_ + gap_); }
  Tensor<const T> view() const { return Tensor<const T>::strided(data_.data(), rows_, columns_, columns_ + gap_); }
  Tensor<const T> input() const { return view(); }
  /// As rank 1, for a matrix of one row.
  Tensor<T> vector() { return {data_.data(), {columns_}}; }
  Tensor<const T> vector_input() const { return {data_.data(), {columns_}}; }

  T& at(std::int64_t row, std::int64_t column) { return view().row(row)[column]; }
  template <class F>
  void set(const F& f) {
    for (std::int64_t i = 0; i < rows_ * columns_; ++i) at(i / columns_, i % columns_) = T(static_cast<float>(f(i)));
  }
  Values values() const { return values_of(view()); }
  bool gaps_untouched() const {
    for (std::int64_t row = 0; row < rows_; ++row)
      for (std::int64_t column = columns_; column < columns_ + gap_; ++column)
        if (static_cast<float>(view().row(row)[column]) != 77.0f) return false;
    return true;
  }

 private:
  std::int64_t rows_, columns_, gap_;
  std::vector<T> data_;
};

/// Largest error that arithmetic in float and one rounding to T may make, relative to the tensor's largest entry.
template <class T>
constexpr double tolerance() {
  return std::is_same_v<T, float> ? 2e-6 : 1.0 / 256;
}

/// Largest difference over the largest expected magnitude; infinite where one is NaN.
inline double difference(const Values& found, const Values& expected) {
  if (found.size() != expected.size()) return std::numeric_limits<double>::infinity();
  double most = 0, largest = 1e-30;
  for (std::size_t i = 0; i < found.size(); ++i) {
    if (!(std::abs(found[i] - expected[i]) <= 1e300)) return std::numeric_limits<double>::infinity();
    most = std::max(most, std::abs(found[i] - expected[i]));
    largest = std::max(largest, std::abs(expected[i]));
  }
  return most / largest;
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

inline double dot(const Values& a, const Values& b) {
  double sum = 0;
  for (std::size_t i = 0; i < a.size(); ++i) sum += a[i] * b[i];
  return sum;
}

inline Values plus(Values a, const Values& b) {
  for (std::size_t i = 0; i < a.size(); ++i) a[i] += b[i];
  return a;
}

inline Values norm_reference(const Values& x, const Values& w, double eps) {
  Values y;
  for (std::size_t begin = 0; begin < x.size(); begin += w.size()) {
    double squares = 0;
    for (std::size_t i = 0; i < w.size(); ++i) squares += x[begin + i] * x[begin + i];
    const double scale = 1 / std::sqrt(squares / static_cast<double>(w.size()) + eps);
    for (std::size_t i = 0; i < w.size(); ++i) y.push_back(x[begin + i] * scale * w[i]);
  }
  return y;
}

inline Tensor<const StepDecision> on_device(const StepDecision& step) { return {&step, {1}}; }
/// What the device would decide of a third step: a quarter of the gradient is left by clipping.
inline StepDecision third_step() { return {.taken = 3, .lr = 0.01, .gradient_scale = 0.25f}; }

/// One step of AdamW, in place.
inline void adamw_reference(const AdamWRules& rules, const StepDecision& step, Values& w, Values& m, Values& v,
                            const Values& g) {
  const auto taken = static_cast<double>(step.taken);
  for (std::size_t i = 0; i < w.size(); ++i) {
    const double gradient = g[i] * step.gradient_scale;
    m[i] = rules.beta1 * m[i] + (1.0 - rules.beta1) * gradient;
    v[i] = rules.beta2 * v[i] + (1.0 - rules.beta2) * gradient * gradient;
    const double root = std::sqrt(v[i] / (1 - std::pow(rules.beta2, taken))) + rules.eps;
    w[i] = w[i] * (1.0 - step.lr * rules.weight_decay) - step.lr / (1 - std::pow(rules.beta1, taken)) * m[i] / root;
  }
}

/// The memory and stream of one rank.
struct Rank {
  explicit Rank(int threads, std::int64_t bytes = 1 << 18) : arena(ledger, bytes), stream(arena, threads) {}
  Ledger ledger;
  Cpu::Arena arena;
  Cpu::Stream stream;
};

/// Threads per rank. ThreadSanitizer does not understand libgomp's barriers, so there it is one.
inline std::vector<int> team_sizes() { return test::thread_sanitizer ? std::vector{1} : std::vector{1, 2, 3}; }

/// Sizes that fill registers and that do not; the largest is worth a team of threads.
struct Case {
  std::int64_t rows, columns, gap;
  int threads;
};
inline std::vector<Case> cases() {
  std::vector<Case> list;
  for (const int threads : team_sizes())
    for (const std::int64_t columns : {1, 3, 7, 15, 16, 257})
      for (const std::int64_t gap : {0, 5}) list.push_back({columns % 4 + 1, columns, gap, threads});
  for (const int threads : team_sizes()) list.push_back({67, 1031, threads == 2 ? 3 : 0, threads});
  return list;
}

}  // namespace fsdp::device::reference
