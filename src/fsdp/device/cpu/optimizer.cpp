// SPDX-License-Identifier: Apache-2.0
/// @file
/// Optimizer steps: the gradients' squared norm, in double or in integers, the decision on a step, and the passes of
/// AdamW and SGD over a shard.
#include <algorithm>
#include <cstdint>

#include <tessera/fsdp/device/cpu.hpp>

#include "../optimizer_step.hpp"
#include "kernels/tables.hpp"
#include "threads.hpp"

namespace fsdp::device {
namespace {

const cpu::OptimizerKernels& optimizer_kernels() { return cpu::kernels<cpu::OptimizerKernels>(); }

/// Calls body(begin, end, part) for each thread's part of x.
template <class Body>
void for_parts_of(const Cpu::Stream& stream, const Tensor<const float>& x, const Body& body) {
  cpu::for_parts(stream, {.count = x.numel(), .step = 64, .bytes = x.bytes()}, body);
}

}  // namespace

std::int64_t scratch(const Cpu::Planner&, const SumOfSquares& op) { return op.chunks() * std::int64_t{sizeof(double)}; }

void run(Cpu::Stream& stream, const SumOfSquares& op, Scratch memory) {
  const Tensor<double> partials = memory.as<double>({op.chunks()});
  cpu::for_rows(stream, partials.numel(), op.x.bytes(), [&](std::int64_t chunk) {
    const std::int64_t first = chunk * sum_chunk;
    partials[chunk] =
        optimizer_kernels().sum_of_squares(op.x.data() + first, std::min(sum_chunk, op.x.numel() - first));
  });
  for (std::int64_t chunk = 0; chunk < partials.numel(); ++chunk) op.sum[0] += partials[chunk];
}

// Exact norms: each thread has one partial result, because integers may be added in any order.

std::int64_t scratch(const Cpu::Planner& planner, const LargestMagnitude&) {
  return planner.threads() * std::int64_t{sizeof(std::int64_t)};
}

void run(Cpu::Stream& stream, const LargestMagnitude& op, Scratch memory) {
  const Tensor<std::int64_t> partials = memory.as<std::int64_t>({stream.threads()});
  std::fill_n(partials.data(), partials.numel(), 0);
  for_parts_of(stream, op.x, [&](std::int64_t begin, std::int64_t end, int part) {
    partials[part] = optimizer_kernels().largest_magnitude(op.x.data() + begin, end - begin);
  });
  for (std::int64_t part = 0; part < partials.numel(); ++part) op.largest[0] = larger_of(op.largest[0], partials[part]);
}

std::int64_t scratch(const Cpu::Planner& planner, const FixedPointSquares&) {
  return planner.threads() * std::int64_t{sizeof(FixedPointSum)};
}

void run(Cpu::Stream& stream, const FixedPointSquares& op, Scratch memory) {
  std::int64_t largest = 0;
  for (std::int64_t rank = 0; rank < op.largest.numel(); ++rank)
    largest = larger_of(largest, op.largest.data()[op.largest_stride() * rank]);
  if (largest >= infinity_bits) return;
  const double scale = fixed_point_scale(largest);
  const Tensor<FixedPointSum> partials = memory.as<FixedPointSum>({stream.threads()});
  std::fill_n(partials.data(), partials.numel(), FixedPointSum());
  for_parts_of(stream, op.x, [&](std::int64_t begin, std::int64_t end, int part) {
    FixedPointSum sum;
    for (std::int64_t at = begin; at < end; at += sum_chunk) {
      const cpu::SplitSum found =
          optimizer_kernels().fixed_point_squares(op.x.data() + at, scale, std::min(sum_chunk, end - at));
      sum.add(((found.coarse & 0xfff) << 20) + found.fine, found.coarse >> 12);
    }
    partials[part] = sum;
  });
  FixedPointSum total{.low = op.sum[0], .high = op.sum[1]};
  for (std::int64_t part = 0; part < partials.numel(); ++part) total.add(partials[part].low, partials[part].high);
  op.sum[0] = total.low;
  op.sum[1] = total.high;
}

void run(Cpu::Stream&, const DecideStep& op) {
  decide_step(op.rules, op.inputs[0], sums_of(op), op.step[0], op.lr, op.norm);
}

template <ComputedBy<Cpu> Model>
void run(Cpu::Stream& stream, const AdamWStep<Model>& op) {
  if (op.step[0].skipped != 0) return cpu::round_again(stream, op.main, op.model);
  const AdamWFactors factors(op.rules, op.step[0]);
  const auto step = [&](float* main, float* first_moment, float* second_moment, const float* gradient, Model* model,
                        std::int64_t count) {
    optimizer_kernels().adamw(factors, main, first_moment, second_moment, gradient, cpu::rounded(model), count);
  };
  cpu::for_elements(stream, op.cost().bytes, step, op.main, op.first_moment, op.second_moment, op.gradient, op.model);
}

template <ComputedBy<Cpu> Model>
void run(Cpu::Stream& stream, const SgdStep<Model>& op) {
  if (op.step[0].skipped != 0) return cpu::round_again(stream, op.main, op.model);
  const auto step = [&](float* main, float* momentum, const float* gradient, Model* model, std::int64_t count) {
    optimizer_kernels().sgd(op.rules, op.step[0], main, momentum, gradient, cpu::rounded(model), count);
  };
  cpu::for_elements(stream, op.cost().bytes, step, op.main, op.momentum, op.gradient, op.model);
}

FSDP_RUN_INSTANCES(Cpu, AdamWStep)
FSDP_RUN_INSTANCES(Cpu, SgdStep)

}  // namespace fsdp::device
