// SPDX-License-Identifier: Apache-2.0
/// @file
/// SGD's pass over a shard.
#include <cstdint>

#include <tessera/fsdp/device/cpu.hpp>

#include "kernels/tables.hpp"
#include "shard_ranges.hpp"

namespace fsdp::device {

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
