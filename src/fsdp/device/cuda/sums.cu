// SPDX-License-Identifier: Apache-2.0
/// @file
/// Sums in a fixed order: of losses, of squares, and of ranks' contributions; and the decision on a step.
#include <algorithm>
#include <vector>

#include "arithmetic.cuh"
#include "elements.cuh"

namespace fsdp::device::cuda {
namespace {

/// Sums with one block: each thread adds every blockDim.x-th value, then block_sum adds the threads' sums.
template <class Value>
__device__ __forceinline__ void add_all(std::int64_t count, double* sum, const Value& value) {
  double own = 0;
  for (std::int64_t i = threadIdx.x; i < count; i += blockDim.x) own += value(i);
  const double total = block_sum(own);
  if (threadIdx.x == 0) sum[0] += total;
}

__global__ void add_values(const double* values, std::int64_t count, double* sum) {
  add_all(count, sum, [&](std::int64_t i) { return values[i]; });
}

__global__ void add_states(const double* states, std::int64_t rows, double* sum) {
  add_all(rows, sum, [&](std::int64_t row) {
    const double* const state = states + 3 * row;
    return negative_log_likelihood(state[0], state[1], state[2]);
  });
}

template <int W>
__global__ void square_chunks(const float* x, std::int64_t count, std::int64_t chunk, std::int64_t chunks,
                              double* partials) {
  for_rows_of_block(chunks, [&](std::int64_t index) {
    const std::int64_t begin = index * chunk, end = begin + chunk < count ? begin + chunk : count;
    double squares = 0;
    for (std::int64_t at = begin + threadIdx.x * W; at < end; at += blockDim.x * W) {
      float a[W];
      if (W == 1 || at + W <= end) {
        load(x + at, a);
      } else {
        for (int i = 0; i < W; ++i) a[i] = at + i < end ? x[at + i] : 0.0f;
      }
#pragma unroll
      for (int i = 0; i < W; ++i) squares += static_cast<double>(a[i]) * static_cast<double>(a[i]);
    }
    const double total = block_sum(squares);
    if (threadIdx.x == 0) partials[index] = total;
  });
}

__global__ void decide(StepRules rules, const StepInputs* inputs, const double* sums, std::int64_t ranks, std::int64_t columns,
                       StepDecision* step) {
  if (threadIdx.x == 0) device::decide_step(rules, *inputs, sums, ranks, columns, *step);
}

__device__ __forceinline__ float on_wire(DType wire, float value) {
  if (wire == DType::bf16) return contribution<float, bf16>(value);
  if (wire == DType::f16) return contribution<float, f16>(value);
  return value;
}

template <class Stored>
struct SumParts {
  const Stored* parts[most_parts];
  int count;
  DType wire;
  bool accumulate;
  float* sum;
  template <int W>
  __device__ __forceinline__ void operator()(std::int64_t, std::int64_t column) const {
    float total[W], a[W];
    load(parts[0] + column, total);
#pragma unroll
    for (int i = 0; i < W; ++i) total[i] = on_wire(wire, total[i]);
    for (int part = 1; part < count; ++part) {
      load(parts[part] + column, a);
#pragma unroll
      for (int i = 0; i < W; ++i) total[i] += on_wire(wire, a[i]);
    }
    if (accumulate) {
      load(sum + column, a);
#pragma unroll
      for (int i = 0; i < W; ++i) total[i] += a[i];
    }
    store(sum + column, total);
  }
};

template <class Stored>
void sum_parts(Lane lane, std::span<const std::byte* const> parts, DType wire, std::int64_t count, Write write,
               float* sum) {
  SumParts<Stored> operation{.parts = {},
                             .count = static_cast<int>(parts.size()),
                             .wire = wire,
                             .accumulate = write == Write::accumulate,
                             .sum = sum};
  std::vector<Access> accesses = {{sum, sizeof(float), count}};
  for (std::size_t i = 0; i < parts.size(); ++i) {
    operation.parts[i] = reinterpret_cast<const Stored*>(parts[i]);
    accesses.push_back({parts[i], sizeof(Stored), count});
  }
  run<16 / sizeof(Stored)>(lane, "sum_in_order", operation, 1, count, accesses);
}

}  // namespace

void add_up(Lane lane, Tensor<const double> values, Tensor<double> sum) {
  if (values.numel() == 0) return;
  launch(lane, "add_up", add_values, Grid{.threads = lane.plain ? warp : most_threads}, 0, values.data(),
         values.numel(), sum.data());
}

void add_up_states(Lane lane, Tensor<const double> state, Tensor<double> sum) {
  if (state.numel() == 0) return;
  launch(lane, "add_up_states", add_states, Grid{.threads = lane.plain ? warp : most_threads}, 0, state.data(),
         state.rows(), sum.data());
}

void squares(Lane lane, Tensor<const float> x, Tensor<double> partials) {
  if (partials.numel() == 0) return;
  const bool wide = !lane.plain && reinterpret_cast<std::uintptr_t>(x.data()) % 16 == 0;
  launch(lane, "sum_of_squares", wide ? square_chunks<4> : square_chunks<1>,
         grid_of_rows(partials.numel(), lane.plain ? 1 : element_threads), 0, x.data(), x.numel(), sum_chunk,
         partials.numel(), partials.data());
}

void decide_step(Lane lane, const StepRules& rules, const StepInputs* inputs, const double* sums, std::int64_t ranks, std::int64_t columns,
                 StepDecision* step) {
  launch(lane, "decide_step", decide, Grid{.threads = warp}, 0, rules, inputs, sums, ranks, columns, step);
}

void sum_in_order(Lane lane, std::span<const std::byte* const> parts, DType stored, DType wire, std::int64_t count,
                  Write write, float* sum) {
  switch (stored) {
    case DType::f32: return sum_parts<float>(lane, parts, wire, count, write, sum);
    case DType::bf16: return sum_parts<bf16>(lane, parts, wire, count, write, sum);
    case DType::f16: return sum_parts<f16>(lane, parts, wire, count, write, sum);
    default: throw LogicError(message("sum_in_order: contributions of ", name_of(stored)));
  }
}

void round(Lane lane, const float* from, DType wire, std::int64_t count, std::byte* to) {
  const Tensor<const float> x(from, {count});
  switch (wire) {
    case DType::f32: return copy<float, float>(lane, x, {reinterpret_cast<float*>(to), {count}});
    case DType::bf16: return copy<float, bf16>(lane, x, {reinterpret_cast<bf16*>(to), {count}});
    case DType::f16: return copy<float, f16>(lane, x, {reinterpret_cast<f16*>(to), {count}});
    default: throw LogicError(message("round: a wire of ", name_of(wire)));
  }
}

}  // namespace fsdp::device::cuda
