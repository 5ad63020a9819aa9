// SPDX-License-Identifier: Apache-2.0
/// @file
/// Muon's elementwise operations.
#include <cmath>
#include <cstdint>

#include <tessera/fsdp/device/compute/cpu.hpp>

#include "../../cpu/threads.hpp"
#include "kernels/tables.hpp"

namespace fsdp::device {

void run(Cpu::Stream& stream, const MomentumDirection& op) {
  const StepDecision& step = op.step[0];
  if (step.skipped != 0) return run(stream, Fill<float>{.y = op.direction, .value = 0});
  const auto& kernels = cpu::kernels<cpu::DirectionKernels>();
  cpu::for_ranges(stream, op.gradient.numel(), op.cost().bytes, [&](std::int64_t begin, std::int64_t count) {
    kernels.momentum(step.gradient_scale, op.momentum, op.nesterov, cpu::at(op.gradient, begin),
                     cpu::at(op.state, begin), cpu::at(op.direction, begin), count);
  });
}

template <ComputedBy<Cpu> T>
void run(Cpu::Stream& stream, const Normalized<T>& op) {
  const float factor = static_cast<float>(1 / (std::sqrt(op.squares[0]) + 1e-7));
  const auto& kernels = cpu::kernels<cpu::DirectionKernels>().of<T>();
  cpu::for_ranges(stream, op.x.numel(), op.cost().bytes, [&](std::int64_t begin, std::int64_t count) {
    kernels.scale(cpu::at(op.x, begin), factor, cpu::at(op.y, begin), count);
  });
}

template <ComputedBy<Cpu> T>
void run(Cpu::Stream& stream, const Combination<T>& op) {
  const auto& kernels = cpu::kernels<cpu::DirectionKernels>().of<T>();
  cpu::for_ranges(stream, op.x.numel(), op.cost().bytes, [&](std::int64_t begin, std::int64_t count) {
    kernels.combine(op.alpha, cpu::at(op.x, begin), op.beta, cpu::at(op.y, begin), count);
  });
}

template <ComputedBy<Cpu> T>
void run(Cpu::Stream& stream, const DirectionStep<T>& op) {
  const StepDecision& step = op.step[0];
  if (step.skipped != 0) return cpu::round_again(stream, op.main, op.model);
  const auto decay = static_cast<float>(1.0 - step.lr * static_cast<double>(op.weight_decay));
  const auto factor = static_cast<float>(step.lr * static_cast<double>(op.scale));
  const auto& kernels = cpu::kernels<cpu::DirectionKernels>().of<T>();
  cpu::for_ranges(stream, op.main.numel(), op.cost().bytes, [&](std::int64_t begin, std::int64_t count) {
    kernels.step(decay, factor, cpu::at(op.direction, begin), cpu::at(op.main, begin), cpu::rounded(op.model, begin),
                 count);
  });
}

FSDP_RUN_INSTANCES(Cpu, Normalized)
FSDP_RUN_INSTANCES(Cpu, Combination)
FSDP_RUN_INSTANCES(Cpu, DirectionStep)

}  // namespace fsdp::device
