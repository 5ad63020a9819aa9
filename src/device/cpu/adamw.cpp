// SPDX-License-Identifier: Apache-2.0
/// @file
/// The optimizer's pass over a shard, and the squared norm that clipping needs.
#include <algorithm>
#include <cmath>

#include <fsdp/device/cpu.hpp>

#include "../costs.hpp"
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

void Cpu::adamw(Stream& stream, const AdamWStep& step, Tensor<float> main, Tensor<float> first_moment,
                Tensor<float> second_moment, Tensor<const float> gradient, Tensor<bf16> model) {
  const costs::Cost cost = costs::adamw(main, first_moment, second_moment, gradient, model);
  stream.counters.elementwise_bytes += cost.bytes;
  const auto as_float = [](double value) { return static_cast<float>(value); };
  const cpu::AdamWFactors factors{
      .gradient_scale = step.gradient_scale,
      .beta1 = step.beta1,
      .one_minus_beta1 = as_float(1.0 - static_cast<double>(step.beta1)),
      .beta2 = step.beta2,
      .one_minus_beta2 = as_float(1.0 - static_cast<double>(step.beta2)),
      .inverse_root_correction2 = as_float(1.0 / std::sqrt(static_cast<double>(step.correction2))),
      .eps = step.eps,
      .decay = as_float(1.0 - static_cast<double>(step.lr) * static_cast<double>(step.weight_decay)),
      .step_size = as_float(static_cast<double>(step.lr) / static_cast<double>(step.correction1))};
  const auto& kernel = cpu::kernels<cpu::OptimizerKernels>();
  const cpu::Division elements{.count = main.numel(), .step = 64, .bytes = cost.bytes};
  cpu::for_parts(stream, elements, [&](std::int64_t begin, std::int64_t end, int) {
    kernel.adamw(factors, main.data() + begin, first_moment.data() + begin, second_moment.data() + begin,
                 gradient.data() + begin, model.data() == nullptr ? nullptr : model.data() + begin, end - begin);
  });
}

}  // namespace fsdp::device
