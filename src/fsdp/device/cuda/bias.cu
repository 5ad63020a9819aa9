// SPDX-License-Identifier: Apache-2.0
/// @file
/// The bias of a linear layer, forward and backward.
#include "kernel.cuh"
#include "scratch.hpp"

namespace fsdp::device::cuda {
namespace {

template <class T>
struct AddToRows {
  const T* bias;
  Rows<T> y;
  template <int W>
  __device__ __forceinline__ void operator()(std::int64_t row, std::int64_t column) const {
    float a[W], b[W];
    load(bias + column, a);
    load(y.row(row) + column, b);
#pragma unroll
    for (int i = 0; i < W; ++i) b[i] += a[i];
    store(y.row(row) + column, b);
  }
};

/// Computes part p of `parts`: the sum of rows p, p + parts, ...
template <class T>
struct SumRows {
  Rows<const T> dy;
  std::int64_t rows, count;
  Rows<float> parts;
  template <int W>
  __device__ __forceinline__ void operator()(std::int64_t part, std::int64_t column) const {
    float sum[W] = {}, a[W];
    for (std::int64_t row = part; row < rows; row += count) {
      load(dy.row(row) + column, a);
#pragma unroll
      for (int i = 0; i < W; ++i) sum[i] += a[i];
    }
#pragma unroll
    for (int i = 0; i < W; ++i) parts.row(part)[column + i] = sum[i];
  }
};

/// Adds the partial sums in order.
struct FoldParts {
  Rows<const float> parts;
  std::int64_t count;
  bool accumulate;
  float* sum;
  template <int W>
  __device__ __forceinline__ void operator()(std::int64_t, std::int64_t column) const {
#pragma unroll
    for (int i = 0; i < W; ++i) {
      double total = accumulate ? static_cast<double>(sum[column + i]) : 0;
      for (std::int64_t part = 0; part < count; ++part) total += static_cast<double>(parts.row(part)[column + i]);
      sum[column + i] = static_cast<float>(total);
    }
  }
};

}  // namespace

template <class T>
void compute(Lane lane, const AddBias<T>& op) {
  const auto& [bias, y] = op;
  const Access accesses[] = {access(y), access(bias)};
  run<widest<T>>(lane, "add_bias", AddToRows<T>{bias.data(), y}, y.rows(), y.columns(), accesses);
}

template <class T>
void compute(Lane lane, const BiasBackward<T>& op, Scratch memory) {
  const auto& [dy, dbias, write] = op;
  const std::int64_t columns = dy.columns(), count = row_parts(dy.rows());
  const auto sums = memory.as<float>({count, columns});
  const Access accesses[] = {access(dy)};
  run<widest<T>>(lane, "bias_backward", SumRows<T>{dy, dy.rows(), count, sums}, count, columns, accesses);
  const Access sum[] = {access(dbias)};
  run<1>(lane, "bias_backward", FoldParts{Tensor<const float>(sums), count, write == Write::accumulate, dbias.data()},
         1, columns, sum);
}

FSDP_FOR_TYPES(compute, Lane, AddBias)
FSDP_FOR_TYPES(compute, Lane, BiasBackward, Scratch)

}  // namespace fsdp::device::cuda
