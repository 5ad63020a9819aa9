// SPDX-License-Identifier: Apache-2.0
/// @file
/// The optimizer's pass over a shard, the squared norm that clipping needs, and the decision between them.
#include <algorithm>

#include <fsdp/device/cpu.hpp>

#include "../costs.hpp"
#include "../optimizer_step.hpp"
#include "kernels/tables.hpp"
#include "threads.hpp"

namespace fsdp::device {

void Cpu::sum_of_squares(Stream& stream, Tensor<const float> x, Tensor<double> sum) {
  const costs::Cost cost = costs::sum_of_squares(x, sum);
  stream.counters.elementwise_bytes += cost.bytes;
  const auto& kernel = cpu::kernels<cpu::OptimizerKernels>();
  Arena::Frame frame(stream.arena());
  const Tensor<double> partials =
      frame.allocate<double>({ceil_divide(x.numel(), costs::sum_chunk)}, MemoryKind::scratch);
  const cpu::Division chunks{.count = partials.numel(), .step = 1, .bytes = cost.bytes};
  cpu::for_parts(stream, chunks, [&](std::int64_t begin, std::int64_t end, int) {
    for (std::int64_t chunk = begin; chunk < end; ++chunk) {
      const std::int64_t first = chunk * costs::sum_chunk;
      partials[chunk] = kernel.sum_of_squares(x.data() + first, std::min(costs::sum_chunk, x.numel() - first));
    }
  });
  for (std::int64_t chunk = 0; chunk < partials.numel(); ++chunk) sum[0] += partials[chunk];
}

void Cpu::decide_step(Stream&, const StepRules& rules, Tensor<const StepInputs> inputs, Tensor<const double> sums,
                      Tensor<StepDecision> step) {
  device::decide_step(rules, inputs[0], sums.data(), costs::ranks_of(sums), step[0]);
}

void Cpu::adamw(Stream& stream, const AdamWRules& rules, Tensor<const StepDecision> step, Tensor<float> main,
                Tensor<float> first_moment, Tensor<float> second_moment, Tensor<const float> gradient,
                Tensor<bf16> model) {
  const costs::Cost cost = costs::adamw(main, first_moment, second_moment, gradient, model);
  stream.counters.elementwise_bytes += cost.bytes;
  if (step[0].skipped != 0) {
    if (model.numel() > 0) copy<float, bf16>(stream, Tensor<const float>(main), model);
    return;
  }
  const AdamWFactors factors(rules, step[0]);
  const auto& kernel = cpu::kernels<cpu::OptimizerKernels>();
  const cpu::Division elements{.count = main.numel(), .step = 64, .bytes = cost.bytes};
  cpu::for_parts(stream, elements, [&](std::int64_t begin, std::int64_t end, int) {
    kernel.adamw(factors, main.data() + begin, first_moment.data() + begin, second_moment.data() + begin,
                 gradient.data() + begin, model.data() == nullptr ? nullptr : model.data() + begin, end - begin);
  });
}

}  // namespace fsdp::device
