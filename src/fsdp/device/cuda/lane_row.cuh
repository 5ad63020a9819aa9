// SPDX-License-Identifier: Apache-2.0
/// @file
/// Rows of heads of any size and type, one warp per row.
#pragma once

#include <cstdint>
#include <type_traits>

#include <tessera/fsdp/core/error.hpp>

#include "kernel.cuh"

namespace fsdp::device::cuda {

/// A row of a head, distributed over the lanes of a warp: lane l stores columns l, l + 32, ... The row has at most 32 N
/// columns.
template <int N>
struct LaneRow {
  float values[N] = {};

  template <class T>
  __device__ __forceinline__ void load(const T* row, std::int64_t head_dim) {
#pragma unroll
    for (int i = 0; i < N; ++i) {
      const std::int64_t column = threadIdx.x % warp + i * warp;
      values[i] = column < head_dim ? widen(row[column]) : 0.0f;
    }
  }
  template <class T>
  __device__ __forceinline__ void store(T* row, std::int64_t head_dim, float factor) const {
#pragma unroll
    for (int i = 0; i < N; ++i) {
      const std::int64_t column = threadIdx.x % warp + i * warp;
      if (column < head_dim) row[column] = narrow<T>(values[i] * factor);
    }
  }
  __device__ __forceinline__ void add(const LaneRow& other, float own_factor, float factor) {
#pragma unroll
    for (int i = 0; i < N; ++i) values[i] = values[i] * own_factor + other.values[i] * factor;
  }
  __device__ __forceinline__ float dot(const LaneRow& other) const {
    float sum = 0;
#pragma unroll
    for (int i = 0; i < N; ++i) sum += values[i] * other.values[i];
    return warp_sum(sum);
  }
};

/// Calls body with the number of columns per lane as a constant.
template <class Body>
void with_columns(std::int64_t head_dim, const Body& body) {
  require<InputError>(head_dim <= 512, "attention on cuda: heads of ", head_dim, " columns; at most 512");
  if (head_dim <= 128)
    body(std::integral_constant<int, 4>());
  else
    body(std::integral_constant<int, 16>());
}

}  // namespace fsdp::device::cuda
