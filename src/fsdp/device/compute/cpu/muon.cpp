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
  const auto direct = [&](const float* gradient, float* state, float* direction, std::int64_t count) {
    cpu::kernels<cpu::RangeKernels>().momentum(step.gradient_scale, op.momentum, op.nesterov, gradient, state,
                                               direction, count);
  };
  cpu::for_elements(stream, op.cost().bytes, direct, op.gradient, op.state, op.direction);
}

template <ComputedBy<Cpu> T>
void run(Cpu::Stream& stream, const Normalized<T>& op) {
  const float factor = static_cast<float>(1 / (std::sqrt(op.squares[0]) + 1e-7));
  const auto scale = [&](const float* x, T* y, std::int64_t count) {
    cpu::kernels<cpu::RangeKernels>().of<T>().scale(x, factor, y, count);
  };
  cpu::for_elements(stream, op.cost().bytes, scale, op.x, op.y);
}

template <ComputedBy<Cpu> T>
void run(Cpu::Stream& stream, const Combination<T>& op) {
  const auto combine = [&](const T* x, T* y, std::int64_t count) {
    cpu::kernels<cpu::RangeKernels>().of<T>().combine(op.alpha, x, op.beta, y, count);
  };
  cpu::for_elements(stream, op.cost().bytes, combine, op.x, op.y);
}

template <ComputedBy<Cpu> T>
void run(Cpu::Stream& stream, const DirectionStep<T>& op) {
  const StepDecision& decision = op.step[0];
  if (decision.skipped != 0) return cpu::round_again(stream, op.main, op.model);
  const auto decay = static_cast<float>(1.0 - decision.lr * static_cast<double>(op.weight_decay));
  const auto factor = static_cast<float>(decision.lr * static_cast<double>(op.scale));
  const auto step = [&](float* main, const T* direction, T* model, std::int64_t count) {
    cpu::kernels<cpu::RangeKernels>().of<T>().step(decay, factor, direction, main, cpu::rounded(model), count);
  };
  cpu::for_elements(stream, op.cost().bytes, step, op.main, op.direction, op.model);
}

FSDP_RUN_INSTANCES(Cpu, Normalized)
FSDP_RUN_INSTANCES(Cpu, Combination)
FSDP_RUN_INSTANCES(Cpu, DirectionStep)

}  // namespace fsdp::device
