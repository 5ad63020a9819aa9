// SPDX-License-Identifier: Apache-2.0
/// @file
/// Sums in a fixed order: of losses, of squares, and of ranks' contributions; exact norms; and the decision on a step.
#include <vector>

#include "arithmetic.cuh"
#include "kernel.cuh"

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

/// A tensor divided into contiguous chunks. Only the last may be shorter.
struct Chunks {
  const float* x;
  std::int64_t count;  ///< number of elements
  std::int64_t chunk;  ///< number of elements of a chunk
  std::int64_t chunks;
};

/// Calls body(value) for this thread's share of a chunk, which it reads W elements at a time; values beyond the
/// tensor's end are 0.
template <int W, class Body>
__device__ __forceinline__ void for_chunk(const Chunks& of, std::int64_t index, const Body& body) {
  const std::int64_t begin = index * of.chunk, end = begin + of.chunk < of.count ? begin + of.chunk : of.count;
  for (std::int64_t at = begin + threadIdx.x * W; at < end; at += blockDim.x * W) {
    float a[W];
    if (W == 1 || at + W <= end) {
      load(of.x + at, a);
    } else {
      for (int i = 0; i < W; ++i) a[i] = at + i < end ? of.x[at + i] : 0.0f;
    }
#pragma unroll
    for (int i = 0; i < W; ++i) body(a[i]);
  }
}

template <int W>
__global__ void square_chunks(Chunks of, double* partials) {
  for_rows_of_block(of.chunks, [&](std::int64_t index) {
    double squares = 0;
    for_chunk<W>(of, index, [&](float a) { squares += static_cast<double>(a) * static_cast<double>(a); });
    const double total = block_sum(squares);
    if (threadIdx.x == 0) partials[index] = total;
  });
}

/// Returns the largest of a block's values, which must not be negative, in every thread. All threads of the block must
/// call it.
__device__ __forceinline__ std::int64_t block_largest(std::int64_t value) {
  __shared__ std::int64_t of_warps[most_threads / warp];
#pragma unroll
  for (int mask = 16; mask > 0; mask /= 2) value = larger_of(value, exchange(value, mask));
  __syncthreads();  // other threads may still be reading an earlier result
  if (threadIdx.x % warp == 0) of_warps[threadIdx.x / warp] = value;
  __syncthreads();
  for (unsigned i = 0; i < blockDim.x / warp; ++i) value = larger_of(value, of_warps[i]);
  return value;
}

/// Returns the largest of `count` values in memory that are `stride` apart, in every thread.
__device__ __forceinline__ std::int64_t largest_of_all(const std::int64_t* values, std::int64_t count,
                                                       std::int64_t stride = 1) {
  std::int64_t own = 0;
  for (std::int64_t i = threadIdx.x; i < count; i += blockDim.x) own = larger_of(own, values[stride * i]);
  return block_largest(own);
}

template <int W>
__global__ void largest_of_chunks(Chunks of, std::int64_t* partials) {
  for_rows_of_block(of.chunks, [&](std::int64_t index) {
    std::int64_t own = 0;
    for_chunk<W>(of, index, [&](float a) { own = larger_of(own, magnitude_bits(a)); });
    const std::int64_t largest = block_largest(own);
    if (threadIdx.x == 0) partials[index] = largest;
  });
}

__global__ void raise_to_largest(const std::int64_t* partials, std::int64_t count, std::int64_t* largest) {
  const std::int64_t found = largest_of_all(partials, count);
  if (threadIdx.x == 0) largest[0] = larger_of(largest[0], found);
}

/// A thread's sums stay below 2^63, because a chunk has fewer than 2^31 elements.
template <int W>
__global__ void fixed_point_chunks(Chunks of, const std::int64_t* largest, std::int64_t ranks, std::int64_t stride,
                                   FixedPointSum* partials) {
  const std::int64_t most = largest_of_all(largest, ranks, stride);
  const bool finite = most < infinity_bits;
  const double scale = finite ? fixed_point_scale(most) : 0;
  for_rows_of_block(of.chunks, [&](std::int64_t index) {
    std::int64_t low = 0, high = 0;
    if (finite)
      for_chunk<W>(of, index, [&](float a) {
        const std::int64_t whole = fixed_point(a, scale);
        const std::int64_t square = whole * whole;
        low += square & 0xffffffff;
        high += square >> 32;
      });
    low = block_sum(low);
    high = block_sum(high);
    if (threadIdx.x == 0) {
      FixedPointSum sum;
      sum.add(low, high);
      partials[index] = sum;
    }
  });
}

__global__ void add_fixed_point(const FixedPointSum* partials, std::int64_t count, std::int64_t* sum) {
  std::int64_t low = 0, high = 0;
  for (std::int64_t i = threadIdx.x; i < count; i += blockDim.x) {
    low += partials[i].low;
    high += partials[i].high;
  }
  low = block_sum(low);
  high = block_sum(high);
  if (threadIdx.x == 0) {
    FixedPointSum total{sum[0], sum[1]};
    total.add(low, high);
    sum[0] = total.low;
    sum[1] = total.high;
  }
}

__global__ void decide(StepRules rules, const StepInputs* inputs, StepSums of, StepDecision* step, double lr,
                       std::int64_t norm) {
  if (threadIdx.x == 0) device::decide_step(rules, *inputs, of, *step, lr, norm);
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
    if (accumulate) {  // the existing value is added before the other parts
      load(sum + column, a);
#pragma unroll
      for (int i = 0; i < W; ++i) total[i] += a[i];
    }
    for (int part = 1; part < count; ++part) {
      load(parts[part] + column, a);
#pragma unroll
      for (int i = 0; i < W; ++i) total[i] += on_wire(wire, a[i]);
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
  std::vector<Access> accesses = {{sum, sizeof(float)}};
  for (std::size_t i = 0; i < parts.size(); ++i) {
    operation.parts[i] = reinterpret_cast<const Stored*>(parts[i]);
    accesses.push_back({parts[i], sizeof(Stored)});
  }
  run<16 / sizeof(Stored)>(lane, "sum_in_order", operation, 1, count, accesses);
}

Grid grid_of_one(Lane lane) { return {.threads = lane.plain ? warp : most_threads}; }

Chunks chunks_of(const Tensor<const float>& x, std::int64_t chunks) {
  return {.x = x.data(), .count = x.numel(), .chunk = sum_chunk, .chunks = chunks};
}
Grid grid_of_chunks(Lane lane, const Chunks& of) { return grid_of_rows(of.chunks, lane.plain ? 1 : element_threads); }
/// Returns whether chunks are read 16 bytes at a time.
bool is_wide(Lane lane, const Tensor<const float>& x) {
  return !lane.plain && reinterpret_cast<std::uintptr_t>(x.data()) % 16 == 0;
}

}  // namespace

void add_up(Lane lane, Tensor<const double> values, Tensor<double> sum) {
  if (values.numel() == 0) return;
  launch(lane, "add_up", add_values, grid_of_one(lane), 0, values.data(), values.numel(), sum.data());
}

void compute(Lane lane, const CrossEntropySum& op) {
  if (op.state.numel() == 0) return;
  launch(lane, "add_up_states", add_states, grid_of_one(lane), 0, op.state.data(), op.state.rows(), op.loss.data());
}

void compute(Lane lane, const SumOfSquares& op, Scratch memory) {
  const auto partials = memory.as<double>({op.chunks()});
  const Chunks chunks = chunks_of(op.x, partials.numel());
  if (chunks.chunks == 0) return;
  launch(lane, "sum_of_squares", is_wide(lane, op.x) ? square_chunks<4> : square_chunks<1>,
         grid_of_chunks(lane, chunks), 0, chunks, partials.data());
  add_up(lane, partials, op.sum);
}

void compute(Lane lane, const LargestMagnitude& op, Scratch memory) {
  const auto partials = memory.as<std::int64_t>({op.chunks()});
  const Chunks chunks = chunks_of(op.x, partials.numel());
  if (chunks.chunks == 0) return;
  launch(lane, "largest_magnitude", is_wide(lane, op.x) ? largest_of_chunks<4> : largest_of_chunks<1>,
         grid_of_chunks(lane, chunks), 0, chunks, partials.data());
  launch(lane, "largest_magnitude", raise_to_largest, grid_of_one(lane), 0, partials.data(), partials.numel(),
         op.largest.data());
}

void compute(Lane lane, const FixedPointSquares& op, Scratch memory) {
  const auto partials = memory.as<FixedPointSum>({op.chunks()});
  const Chunks chunks = chunks_of(op.x, partials.numel());
  if (chunks.chunks == 0) return;
  launch(lane, "fixed_point_squares", is_wide(lane, op.x) ? fixed_point_chunks<4> : fixed_point_chunks<1>,
         grid_of_chunks(lane, chunks), 0, chunks, op.largest.data(), op.largest.numel(), op.largest_stride(),
         partials.data());
  launch(lane, "fixed_point_squares", add_fixed_point, grid_of_one(lane), 0, partials.data(), partials.numel(),
         op.sum.data());
}

void compute(Lane lane, const DecideStep& op) {
  launch(lane, "decide_step", decide, Grid{.threads = warp}, 0, op.rules, op.inputs.data(), sums_of(op), op.step.data(),
         op.lr, op.norm);
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
  const auto copy = [&]<class Y>(Y* rounded) {
    compute(lane, Copy<float, Y>{.x = {from, {count}}, .y = {rounded, {count}}});
  };
  switch (wire) {
    case DType::f32: return copy(reinterpret_cast<float*>(to));
    case DType::bf16: return copy(reinterpret_cast<bf16*>(to));
    case DType::f16: return copy(reinterpret_cast<f16*>(to));
    default: throw LogicError(message("round: a wire of ", name_of(wire)));
  }
}

}  // namespace fsdp::device::cuda
