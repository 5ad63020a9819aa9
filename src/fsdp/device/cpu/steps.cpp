// SPDX-License-Identifier: Apache-2.0
/// @file
/// SGD's pass over a shard, and Muon's elementwise operations.
#include <cmath>
#include <cstdint>
#include <type_traits>

#include <tessera/fsdp/device/cpu.hpp>

#include "kernels/tables.hpp"
#include "threads.hpp"

namespace fsdp::device {
namespace {

/// Calls body(begin, count) for the range of each thread.
template <class Body>
void for_ranges(const Cpu::Stream& stream, std::int64_t count, std::int64_t bytes, const Body& body) {
  cpu::for_parts(stream, {.count = count, .step = 64, .bytes = bytes},
                 [&](std::int64_t begin, std::int64_t end, int) { body(begin, end - begin); });
}

template <class T>
T* at(const Tensor<T>& tensor, std::int64_t begin) {
  return tensor.numel() == 0 ? nullptr : tensor.data() + begin;
}

bf16* rounded(const Tensor<bf16>& model, std::int64_t begin) { return at(model, begin); }
bf16* rounded(const Tensor<float>&, std::int64_t) { return nullptr; }

/// Writes the model's weights again in a skipped step.
template <class Model>
void round_again(Cpu::Stream& stream, const Tensor<float>& main, const Tensor<Model>& model) {
  if constexpr (!std::is_same_v<Model, float>)
    if (model.numel() > 0) run(stream, Copy<float, Model>{.x = main, .y = model});
}

}  // namespace

template <ComputedBy<Cpu> Model>
void run(Cpu::Stream& stream, const SgdStep<Model>& op) {
  const StepDecision& step = op.step[0];
  if (step.skipped != 0) return round_again(stream, op.main, op.model);
  const cpu::SgdFactors factors{.gradient_scale = step.gradient_scale,
                                .lr = static_cast<float>(step.lr),
                                .momentum = op.rules.momentum,
                                .weight_decay = op.rules.weight_decay,
                                .nesterov = op.rules.nesterov};
  const auto& kernels = cpu::kernels<cpu::StepKernels>();
  for_ranges(stream, op.main.numel(), op.cost().bytes, [&](std::int64_t begin, std::int64_t count) {
    kernels.sgd(factors, at(op.main, begin), at(op.momentum, begin), at(op.gradient, begin), rounded(op.model, begin),
                count);
  });
}

void run(Cpu::Stream& stream, const MomentumDirection& op) {
  const StepDecision& step = op.step[0];
  if (step.skipped != 0) return run(stream, Fill<float>{.y = op.direction, .value = 0});
  const auto& kernels = cpu::kernels<cpu::StepKernels>();
  for_ranges(stream, op.gradient.numel(), op.cost().bytes, [&](std::int64_t begin, std::int64_t count) {
    kernels.momentum_direction(step.gradient_scale, op.momentum, op.nesterov, at(op.gradient, begin),
                               at(op.state, begin), at(op.direction, begin), count);
  });
}

template <ComputedBy<Cpu> T>
void run(Cpu::Stream& stream, const Normalized<T>& op) {
  const float factor = static_cast<float>(1 / (std::sqrt(op.squares[0]) + 1e-7));
  const auto& kernels = cpu::kernels<cpu::StepKernels>().of<T>();
  for_ranges(stream, op.x.numel(), op.cost().bytes, [&](std::int64_t begin, std::int64_t count) {
    kernels.scale(at(op.x, begin), factor, at(op.y, begin), count);
  });
}

template <ComputedBy<Cpu> T>
void run(Cpu::Stream& stream, const Combination<T>& op) {
  const auto& kernels = cpu::kernels<cpu::StepKernels>().of<T>();
  for_ranges(stream, op.x.numel(), op.cost().bytes, [&](std::int64_t begin, std::int64_t count) {
    kernels.combine(op.alpha, at(op.x, begin), op.beta, at(op.y, begin), count);
  });
}

template <ComputedBy<Cpu> T>
void run(Cpu::Stream& stream, const DirectionStep<T>& op) {
  const StepDecision& step = op.step[0];
  if (step.skipped != 0) return round_again(stream, op.main, op.model);
  const auto decay = static_cast<float>(1.0 - step.lr * static_cast<double>(op.weight_decay));
  const auto factor = static_cast<float>(step.lr * static_cast<double>(op.scale));
  const auto& kernels = cpu::kernels<cpu::StepKernels>().of<T>();
  for_ranges(stream, op.main.numel(), op.cost().bytes, [&](std::int64_t begin, std::int64_t count) {
    kernels.step(decay, factor, at(op.direction, begin), at(op.main, begin), rounded(op.model, begin), count);
  });
}

template void run(Cpu::Stream&, const SgdStep<float>&);
template void run(Cpu::Stream&, const SgdStep<bf16>&);
template void run(Cpu::Stream&, const Normalized<float>&);
template void run(Cpu::Stream&, const Normalized<bf16>&);
template void run(Cpu::Stream&, const Combination<float>&);
template void run(Cpu::Stream&, const Combination<bf16>&);
template void run(Cpu::Stream&, const DirectionStep<float>&);
template void run(Cpu::Stream&, const DirectionStep<bf16>&);

}  // namespace fsdp::device
