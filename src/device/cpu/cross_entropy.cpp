// SPDX-License-Identifier: Apache-2.0
/// @file
/// The loss of a language model's head, and its gradient in place of the logits.
#include <cmath>

#include <fsdp/device/cpu.hpp>

#include "../costs.hpp"
#include "kernels/tables.hpp"
#include "threads.hpp"

namespace fsdp::device {
namespace {

void require_targets(const Tensor<const std::int32_t>& targets, std::int64_t vocabulary) {
  for (std::int64_t t = 0; t < targets.numel(); ++t)
    require<InputError>(targets[t] < vocabulary, "cross_entropy: target ", targets[t], " in row ", t,
                        " is outside the vocabulary of ", vocabulary);
}

/// Rows with a target get their loss, each in double; finish(row, maximum, sum) may then replace the row. The losses
/// are added in the order of the rows, whatever the number of threads.
template <class T, class Finish>
void sum_losses(Cpu::Stream& stream, Tensor<const T> logits, Tensor<const std::int32_t> targets, Tensor<double> loss,
                const costs::Cost& cost, const Finish& finish) {
  require_targets(targets, logits.columns());
  stream.counters.elementwise_bytes += cost.bytes;
  const auto& kernel = cpu::kernels<cpu::SoftmaxKernels>().of<T>();
  Cpu::Arena::Frame frame(stream.arena());
  const Tensor<double> losses = frame.allocate<double>({logits.rows()}, MemoryKind::scratch);
  const cpu::Division rows{.count = logits.rows(), .step = 1, .bytes = cost.bytes};
  cpu::for_parts(stream, rows, [&](std::int64_t begin, std::int64_t end, int) {
    for (std::int64_t row = begin; row < end; ++row) {
      float maximum = 0;
      double sum = 1;
      losses[row] = 0;
      if (targets[row] >= 0) {
        kernel.maximum_and_sum(logits.row(row), logits.columns(), &maximum, &sum);
        const double target = static_cast<float>(logits.row(row)[targets[row]]);
        losses[row] = std::log(sum) + (static_cast<double>(maximum) - target);
      }
      finish(row, maximum, sum);
    }
  });
  for (std::int64_t row = 0; row < logits.rows(); ++row) loss[0] += losses[row];
}

}  // namespace

template <class T>
void Cpu::cross_entropy(Stream& stream, Tensor<T> logits, Tensor<const std::int32_t> targets, float scale,
                        Tensor<double> loss) {
  const costs::Cost cost = costs::cross_entropy(logits, targets, loss, 2);
  const auto& softmax = cpu::kernels<cpu::SoftmaxKernels>().of<T>();
  const auto& elementwise = cpu::kernels<cpu::ElementwiseKernels>().of<T>();
  sum_losses<T>(stream, logits, targets, loss, cost, [&](std::int64_t row, float maximum, double sum) {
    T* const values = logits.row(row);
    const std::int32_t target = targets[row];
    if (target < 0) {
      elementwise.fill(values, 0.0f, logits.columns());
      return;
    }
    // The target's entry apart, so that p - 1 is rounded once.
    const double likelihood =
        std::exp(static_cast<double>(static_cast<float>(values[target])) - static_cast<double>(maximum)) / sum;
    softmax.scaled_exponential(values, logits.columns(), maximum, static_cast<float>(static_cast<double>(scale) / sum));
    values[target] = T(static_cast<float>(static_cast<double>(scale) * (likelihood - 1)));
  });
}

template <class T>
void Cpu::cross_entropy_loss(Stream& stream, Tensor<const T> logits, Tensor<const std::int32_t> targets,
                             Tensor<double> loss) {
  const costs::Cost cost = costs::cross_entropy(logits, targets, loss, 1);
  sum_losses<T>(stream, logits, targets, loss, cost, [](std::int64_t, float, double) {});
}

template void Cpu::cross_entropy<float>(Stream&, Tensor<float>, Tensor<const std::int32_t>, float, Tensor<double>);
template void Cpu::cross_entropy<bf16>(Stream&, Tensor<bf16>, Tensor<const std::int32_t>, float, Tensor<double>);
template void Cpu::cross_entropy_loss<float>(Stream&, Tensor<const float>, Tensor<const std::int32_t>, Tensor<double>);
template void Cpu::cross_entropy_loss<bf16>(Stream&, Tensor<const bf16>, Tensor<const std::int32_t>, Tensor<double>);

}  // namespace fsdp::device
