// SPDX-License-Identifier: Apache-2.0
/// @file
/// AdamW's pass over a shard, the gradients' squared norm, and the decision on a step.
#include <algorithm>
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

}  // namespace fsdp::device
