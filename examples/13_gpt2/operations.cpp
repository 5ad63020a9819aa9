// SPDX-License-Identifier: Apache-2.0
/// @file
/// GPT-2's operations on the CPU: plain loops over rows, or over columns for sums of rows.
#include "operations.hpp"

#include <algorithm>
#include <array>
#include <cmath>

#include <tessera/fsdp/core/checked.hpp>
#include <tessera/fsdp/core/dtype.hpp>

namespace gpt2 {
namespace {

/// Calls body(i) for each i in [0, count), on the stream's threads.
template <class Body>
void for_each(const Cpu::Stream& stream, std::int64_t count, const Body& body) {
  const int threads = stream.threads();
#pragma omp parallel for schedule(static) num_threads(threads) if (threads > 1)
  for (std::int64_t i = 0; i < count; ++i) body(i);
}

/// Number of columns that one thread sums together: their values in a row are one cache line of floats.
constexpr std::int64_t block = 16;

/// sums[c] (+)= the sum over rows of term(row, c). Adds in double, in the order of rows for any number of threads.
template <class Term>
void sum_rows(const Cpu::Stream& stream, std::int64_t rows, const Tensor<float>& sums, Write write, const Term& term) {
  if (sums.data() == nullptr) return;
  for_each(stream, fsdp::ceil_divide(sums.numel(), block), [&](std::int64_t index) {
    const std::int64_t begin = index * block, count = std::min(block, sums.numel() - begin);
    std::array<double, block> sum{};
    for (std::int64_t row = 0; row < rows; ++row)
      for (std::int64_t c = 0; c < count; ++c)
        sum[static_cast<std::size_t>(c)] += static_cast<double>(term(row, begin + c));
    for (std::int64_t c = 0; c < count; ++c) {
      const auto total = static_cast<float>(sum[static_cast<std::size_t>(c)]);
      sums[begin + c] = write == Write::accumulate ? sums[begin + c] + total : total;
    }
  });
}

/// tanh(u) for u = sqrt(2 / pi) (x + 0.044715 x^3), and the derivative du / dx.
struct GeluParts {
  explicit GeluParts(float x)
      : tanh(std::tanh(root * (x + cubic * x * x * x))), slope(root * (1 + 3 * cubic * x * x)) {}
  static constexpr float root = 0.7978845608f, cubic = 0.044715f;
  float tanh, slope;
};

}  // namespace

template <fsdp::device::ComputedBy<Cpu> T>
void run(Cpu::Stream& stream, const LayerNorm<T>& op) {
  const std::int64_t columns = op.x.columns();
  for_each(stream, op.x.rows(), [&](std::int64_t row) {
    const T* const x = op.x.row(row);
    T* const y = op.y.row(row);
    double sum = 0, squares = 0;
    for (std::int64_t c = 0; c < columns; ++c) sum += static_cast<double>(static_cast<float>(x[c]));
    const double mean = sum / static_cast<double>(columns);
    for (std::int64_t c = 0; c < columns; ++c) {
      const double distance = static_cast<double>(static_cast<float>(x[c])) - mean;
      squares += distance * distance;
    }
    const double variance = squares / static_cast<double>(columns);
    op.mean[row] = static_cast<float>(mean);
    op.rstd[row] = static_cast<float>(1 / std::sqrt(variance + static_cast<double>(op.eps)));
    for (std::int64_t c = 0; c < columns; ++c)
      y[c] = T((static_cast<float>(x[c]) - op.mean[row]) * op.rstd[row] * static_cast<float>(op.weight[c]) +
               static_cast<float>(op.bias[c]));
  });
}

template <fsdp::device::ComputedBy<Cpu> T>
void run(Cpu::Stream& stream, const LayerNormBackward<T>& op) {
  const std::int64_t rows = op.x.rows(), columns = op.x.columns();
  const auto normal = [&](std::int64_t row, std::int64_t c) {
    return (static_cast<float>(op.x.row(row)[c]) - op.mean[row]) * op.rstd[row];
  };
  // Computes the sums first: they read all rows of dy, and dx may overwrite those.
  sum_rows(stream, rows, op.dweight, op.dweight_write,
           [&](std::int64_t row, std::int64_t c) { return static_cast<float>(op.dy.row(row)[c]) * normal(row, c); });
  sum_rows(stream, rows, op.dbias, op.dbias_write,
           [&](std::int64_t row, std::int64_t c) { return static_cast<float>(op.dy.row(row)[c]); });
  for_each(stream, rows, [&](std::int64_t row) {
    const auto scaled = [&](std::int64_t c) {
      return static_cast<float>(op.dy.row(row)[c]) * static_cast<float>(op.weight[c]);
    };
    double sum = 0, along = 0;
    for (std::int64_t c = 0; c < columns; ++c) {
      sum += static_cast<double>(scaled(c));
      along += static_cast<double>(scaled(c)) * static_cast<double>(normal(row, c));
    }
    const auto mean = static_cast<float>(sum / static_cast<double>(columns));
    const auto slope = static_cast<float>(along / static_cast<double>(columns));
    T* const dx = op.dx.row(row);
    for (std::int64_t c = 0; c < columns; ++c) {
      const float d = op.rstd[row] * (scaled(c) - mean - normal(row, c) * slope);
      dx[c] = T(op.dx_write == Write::accumulate ? static_cast<float>(dx[c]) + d : d);
    }
  });
}

template <fsdp::device::ComputedBy<Cpu> T>
void run(Cpu::Stream& stream, const Gelu<T>& op) {
  for_each(stream, op.x.numel(), [&](std::int64_t i) {
    const auto x = static_cast<float>(op.x.data()[i]);
    op.y.data()[i] = T(0.5f * x * (1 + GeluParts(x).tanh));
  });
}

template <fsdp::device::ComputedBy<Cpu> T>
void run(Cpu::Stream& stream, const GeluBackward<T>& op) {
  for_each(stream, op.x.numel(), [&](std::int64_t i) {
    const auto x = static_cast<float>(op.x.data()[i]);
    const GeluParts gelu(x);
    const float slope = 0.5f * (1 + gelu.tanh) + 0.5f * x * (1 - gelu.tanh * gelu.tanh) * gelu.slope;
    op.d.data()[i] = T(static_cast<float>(op.d.data()[i]) * slope);
  });
}

template <fsdp::device::ComputedBy<Cpu> T>
void run(Cpu::Stream& stream, const AddPositions<T>& op) {
  for_each(stream, op.y.rows(), [&](std::int64_t row) {
    const T* const table = op.table.row(op.positions.of(row));
    T* const y = op.y.row(row);
    for (std::int64_t c = 0; c < op.y.columns(); ++c) y[c] = T(static_cast<float>(y[c]) + static_cast<float>(table[c]));
  });
}

template <fsdp::device::ComputedBy<Cpu> T>
void run(Cpu::Stream& stream, const PositionsGradient<T>& op) {
  const std::int64_t columns = op.dtable.columns();
  if (op.write == Write::overwrite) std::fill_n(op.dtable.data(), op.dtable.numel(), 0.0f);
  for_each(stream, fsdp::ceil_divide(columns, block), [&](std::int64_t index) {
    const std::int64_t begin = index * block, end = std::min(begin + block, columns);
    for (std::int64_t row = 0; row < op.dy.rows(); ++row) {
      float* const sums = op.dtable.row(op.positions.of(row));
      for (std::int64_t c = begin; c < end; ++c) sums[c] += static_cast<float>(op.dy.row(row)[c]);
    }
  });
}

#define GPT2_RUN(Operation)                                 \
  template void run(Cpu::Stream&, const Operation<float>&); \
  template void run(Cpu::Stream&, const Operation<fsdp::bf16>&);
GPT2_RUN(LayerNorm)
GPT2_RUN(LayerNormBackward)
GPT2_RUN(Gelu)
GPT2_RUN(GeluBackward)
GPT2_RUN(AddPositions)
GPT2_RUN(PositionsGradient)
#undef GPT2_RUN

}  // namespace gpt2
