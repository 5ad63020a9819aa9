// SPDX-License-Identifier: Apache-2.0
/// @file
/// Optimizer steps: the gradients' squared norm, in double or in integers, the decision on a step, and the passes of
/// AdamW and SGD over a shard.
#include <algorithm>
#include <cstdint>
#include <type_traits>

#include <tessera/fsdp/device/cpu.hpp>

#include "../optimizer_step.hpp"
#include "kernels/tables.hpp"
#include "threads.hpp"

namespace fsdp::device {

std::int64_t scratch(const Cpu::Planner&, const SumOfSquares& op) { return op.chunks() * std::int64_t{sizeof(double)}; }

void run(Cpu::Stream& stream, const SumOfSquares& op, Scratch memory) {
  const auto& kernel = cpu::kernels<cpu::OptimizerKernels>();
  const Tensor<double> partials = memory.as<double>({op.chunks()});
  const cpu::Division chunks{.count = partials.numel(), .step = 1, .bytes = op.cost().bytes};
  cpu::for_parts(stream, chunks, [&](std::int64_t begin, std::int64_t end, int) {
    for (std::int64_t chunk = begin; chunk < end; ++chunk) {
      const std::int64_t first = chunk * sum_chunk;
      partials[chunk] = kernel.sum_of_squares(op.x.data() + first, std::min(sum_chunk, op.x.numel() - first));
    }
  });
  for (std::int64_t chunk = 0; chunk < partials.numel(); ++chunk) op.sum[0] += partials[chunk];
}

void run(Cpu::Stream&, const DecideStep& op) {
  decide_step(op.rules, op.inputs[0], sums_of(op), op.step[0], op.lr, op.norm);
}

template <ComputedBy<Cpu> Model>
void run(Cpu::Stream& stream, const AdamWStep<Model>& op) {
  if (op.step[0].skipped != 0) {
    if (op.writes_model()) run(stream, Copy<float, Model>{.x = op.main, .y = op.model});
    return;
  }
  const AdamWFactors factors(op.rules, op.step[0]);
  const auto& kernel = cpu::kernels<cpu::OptimizerKernels>();
  const cpu::Division elements{.count = op.main.numel(), .step = 64, .bytes = op.cost().bytes};
  cpu::for_parts(stream, elements, [&](std::int64_t begin, std::int64_t end, int) {
    bf16* model = nullptr;
    if constexpr (std::is_same_v<Model, bf16>) model = op.writes_model() ? op.model.data() + begin : nullptr;
    kernel.adamw(factors, op.main.data() + begin, op.first_moment.data() + begin, op.second_moment.data() + begin,
                 op.gradient.data() + begin, model, end - begin);
  });
}

FSDP_RUN_INSTANCES(Cpu, AdamWStep)

std::int64_t scratch(const Cpu::Planner& planner, const LargestMagnitude&) {
  return planner.threads() * std::int64_t{sizeof(std::int64_t)};
}

void run(Cpu::Stream& stream, const LargestMagnitude& op, Scratch memory) {
  const auto& kernel = cpu::kernels<cpu::OptimizerKernels>();
  const Tensor<std::int64_t> partials = memory.as<std::int64_t>({stream.threads()});
  std::fill_n(partials.data(), partials.numel(), 0);
  const cpu::Division elements{.count = op.x.numel(), .step = 64, .bytes = op.cost().bytes};
  cpu::for_parts(stream, elements, [&](std::int64_t begin, std::int64_t end, int part) {
    partials[part] = kernel.largest_magnitude(op.x.data() + begin, end - begin);
  });
  for (std::int64_t part = 0; part < partials.numel(); ++part)
    op.largest.data()[0] = larger_of(op.largest.data()[0], partials[part]);
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
  const auto& kernel = cpu::kernels<cpu::OptimizerKernels>();
  const Tensor<FixedPointSum> partials = memory.as<FixedPointSum>({stream.threads()});
  std::fill_n(partials.data(), partials.numel(), FixedPointSum());
  const cpu::Division elements{.count = op.x.numel(), .step = 64, .bytes = op.cost().bytes};
  cpu::for_parts(stream, elements, [&](std::int64_t begin, std::int64_t end, int part) {
    FixedPointSum sum;
    for (std::int64_t at = begin; at < end; at += sum_chunk) {
      const cpu::SplitSum found = kernel.fixed_point_squares(op.x.data() + at, scale, std::min(sum_chunk, end - at));
      sum.add(((found.coarse & 0xfff) << 20) + found.fine, found.coarse >> 12);
    }
    partials[part] = sum;
  });
  std::int64_t* const sum = op.sum.data();
  FixedPointSum total{.low = sum[0], .high = sum[1]};
  for (std::int64_t part = 0; part < partials.numel(); ++part) total.add(partials[part].low, partials[part].high);
  sum[0] = total.low;
  sum[1] = total.high;
}

template <ComputedBy<Cpu> Model>
void run(Cpu::Stream& stream, const SgdStep<Model>& op) {
  const StepDecision& step = op.step[0];
  if (step.skipped != 0) return cpu::round_again(stream, op.main, op.model);
  const cpu::SgdFactors factors{.gradient_scale = step.gradient_scale,
                                .lr = static_cast<float>(step.lr),
                                .momentum = op.rules.momentum,
                                .weight_decay = op.rules.weight_decay,
                                .nesterov = op.rules.nesterov};
  const auto& kernels = cpu::kernels<cpu::SgdKernels>();
  cpu::for_ranges(stream, op.main.numel(), op.cost().bytes, [&](std::int64_t begin, std::int64_t count) {
    kernels.sgd(factors, cpu::at(op.main, begin), cpu::at(op.momentum, begin), cpu::at(op.gradient, begin),
                cpu::rounded(op.model, begin), count);
  });
}

FSDP_RUN_INSTANCES(Cpu, SgdStep)

}  // namespace fsdp::device
