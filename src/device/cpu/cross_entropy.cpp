// SPDX-License-Identifier: Apache-2.0
/// @file
/// The loss of a language model's head, and its gradient in place of the logits: of whole rows, or of blocks of columns
/// one after the other (the online softmax of Milakov and Gimelshein 2018).
#include <algorithm>
#include <cmath>
#include <limits>

#include <fsdp/device/cpu.hpp>

#include "../costs.hpp"
#include "kernels/tables.hpp"
#include "threads.hpp"

namespace fsdp::device {
namespace {

/// Columns of a state: log sum exp is maximum + log(sum).
enum State : std::int64_t { maximum, sum, target_logit };

void require_targets(const Tensor<const std::int32_t>& targets, std::int64_t vocabulary) {
  for (std::int64_t t = 0; t < targets.numel(); ++t)
    require<InputError>(targets[t] >= 0 && targets[t] < vocabulary, "cross_entropy: target ", targets[t], " in row ", t,
                        " is outside the vocabulary of ", vocabulary);
}

/// body(row) for all rows, shared out among threads.
template <class Body>
void for_rows(const Cpu::Stream& stream, std::int64_t count, const costs::Cost& cost, const Body& body) {
  const cpu::Division rows{.count = count, .step = 1, .bytes = cost.bytes};
  cpu::for_parts(stream, rows, [&](std::int64_t begin, std::int64_t end, int) {
    for (std::int64_t row = begin; row < end; ++row) body(row);
  });
}

/// row = scale * (exp(row - maximum) / sum - one_hot), whose 1 stands at `target` where that is among the columns.
template <class T>
void replace_row(T* row, std::int64_t columns, std::int64_t target, float most, double total, float scale) {
  const bool holds_target = target >= 0 && target < columns;
  // The target's entry apart, so that p - 1 is rounded once.
  double likelihood = 0;
  if (holds_target)
    likelihood = std::exp(static_cast<double>(static_cast<float>(row[target])) - static_cast<double>(most)) / total;
  cpu::kernels<cpu::SoftmaxKernels>().of<T>().scaled_exponential(
      row, columns, most, static_cast<float>(static_cast<double>(scale) / total));
  if (holds_target) row[target] = T(static_cast<float>(static_cast<double>(scale) * (likelihood - 1)));
}

/// Every row's loss, in double; finish(row, maximum, sum) may then replace the row. The losses are added in the order
/// of the rows, whatever the number of threads.
template <class T, class Finish>
void sum_losses(Cpu::Stream& stream, Tensor<const T> logits, Tensor<const std::int32_t> targets, Tensor<double> loss,
                const costs::Cost& cost, const Finish& finish) {
  require_targets(targets, logits.columns());
  stream.counters.elementwise_bytes += cost.bytes;
  const auto& kernel = cpu::kernels<cpu::SoftmaxKernels>().of<T>();
  Cpu::Arena::Frame frame(stream.arena());
  const Tensor<double> losses = frame.allocate<double>({logits.rows()}, MemoryKind::scratch);
  for_rows(stream, logits.rows(), cost, [&](std::int64_t row) {
    float most = 0;
    double total = 0;
    kernel.maximum_and_sum(logits.row(row), logits.columns(), &most, &total);
    const double target = static_cast<float>(logits.row(row)[targets[row]]);
    losses[row] = std::log(total) + (static_cast<double>(most) - target);
    finish(row, most, total);
  });
  for (std::int64_t row = 0; row < logits.rows(); ++row) loss[0] += losses[row];
}

}  // namespace

template <class T>
void Cpu::cross_entropy(Stream& stream, Tensor<T> logits, Tensor<const std::int32_t> targets, float scale,
                        Tensor<double> loss) {
  const costs::Cost cost = costs::cross_entropy(logits, targets, loss, 2);
  sum_losses<T>(stream, logits, targets, loss, cost, [&](std::int64_t row, float most, double total) {
    replace_row(logits.row(row), logits.columns(), targets[row], most, total, scale);
  });
}

template <class T>
void Cpu::cross_entropy_loss(Stream& stream, Tensor<const T> logits, Tensor<const std::int32_t> targets,
                             Tensor<double> loss) {
  const costs::Cost cost = costs::cross_entropy(logits, targets, loss, 1);
  sum_losses<T>(stream, logits, targets, loss, cost, [](std::int64_t, float, double) {});
}

template <class T>
void Cpu::cross_entropy_fold(Stream& stream, Tensor<const T> logits, std::int64_t first,
                             Tensor<const std::int32_t> targets, Tensor<double> state) {
  const costs::Cost cost = costs::cross_entropy_block(logits, targets, state, 1);
  stream.counters.elementwise_bytes += cost.bytes;
  const auto& kernel = cpu::kernels<cpu::SoftmaxKernels>().of<T>();
  for_rows(stream, logits.rows(), cost, [&](std::int64_t row) {
    double* const so_far = state.row(row);
    if (first == 0) so_far[maximum] = -std::numeric_limits<double>::infinity();
    if (first == 0) so_far[sum] = so_far[target_logit] = 0;
    float block_most = 0;
    double block_sum = 0;
    kernel.maximum_and_sum(logits.row(row), logits.columns(), &block_most, &block_sum);
    const double most = std::max(so_far[maximum], static_cast<double>(block_most));
    so_far[sum] =
        so_far[sum] * std::exp(so_far[maximum] - most) + block_sum * std::exp(static_cast<double>(block_most) - most);
    so_far[maximum] = most;
    const std::int64_t target = targets[row] - first;
    if (target >= 0 && target < logits.columns())
      so_far[target_logit] = static_cast<double>(static_cast<float>(logits.row(row)[target]));
  });
}

void Cpu::cross_entropy_sum(Stream& stream, Tensor<const double> state, Tensor<double> loss) {
  stream.counters.elementwise_bytes += costs::cross_entropy_sum(state, loss).bytes;
  for (std::int64_t row = 0; row < state.rows(); ++row) {
    const double* const whole = state.row(row);
    loss[0] += std::log(whole[sum]) + (whole[maximum] - whole[target_logit]);
  }
}

template <class T>
void Cpu::cross_entropy_gradient(Stream& stream, Tensor<T> logits, std::int64_t first,
                                 Tensor<const std::int32_t> targets, float scale, Tensor<const double> state) {
  const costs::Cost cost = costs::cross_entropy_block(Tensor<const T>(logits), targets, state, 2);
  stream.counters.elementwise_bytes += cost.bytes;
  for_rows(stream, logits.rows(), cost, [&](std::int64_t row) {
    replace_row(logits.row(row), logits.columns(), targets[row] - first, static_cast<float>(state.row(row)[maximum]),
                state.row(row)[sum], scale);
  });
}

#define FSDP_CROSS_ENTROPY(T)                                                                                       \
  template void Cpu::cross_entropy<T>(Stream&, Tensor<T>, Tensor<const std::int32_t>, float, Tensor<double>);       \
  template void Cpu::cross_entropy_loss<T>(Stream&, Tensor<const T>, Tensor<const std::int32_t>, Tensor<double>);   \
  template void Cpu::cross_entropy_fold<T>(Stream&, Tensor<const T>, std::int64_t, Tensor<const std::int32_t>,      \
                                           Tensor<double>);                                                         \
  template void Cpu::cross_entropy_gradient<T>(Stream&, Tensor<T>, std::int64_t, Tensor<const std::int32_t>, float, \
                                               Tensor<const double>);
FSDP_CROSS_ENTROPY(float)
FSDP_CROSS_ENTROPY(bf16)

}  // namespace fsdp::device
