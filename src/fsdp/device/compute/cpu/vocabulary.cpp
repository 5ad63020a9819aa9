// SPDX-License-Identifier: Apache-2.0
/// @file
/// Embedding lookup and cross entropy, with their gradients. Cross entropy is computed in place of the logits, for
/// whole rows or for successive blocks of columns (the online softmax of Milakov and Gimelshein 2018).
#include <algorithm>
#include <cmath>
#include <cstring>
#include <limits>
#include <string_view>
#include <type_traits>

#include <tessera/fsdp/device/compute/cpu.hpp>

#include "../../cpu/threads.hpp"
#include "kernels/tables.hpp"

namespace fsdp::device {
namespace {

/// Throws InputError unless all ids are in the vocabulary. `what` and `where` describe them.
void require_in_vocabulary(const Tensor<const std::int32_t>& ids, std::int64_t vocabulary, std::string_view what,
                           std::string_view where) {
  for (std::int64_t t = 0; t < ids.numel(); ++t)
    require<InputError>(ids[t] >= 0 && ids[t] < vocabulary, what, " ", ids[t], where, t,
                        " is outside the vocabulary of ", vocabulary);
}

/// Columns of a row's state. The row's log sum exp is maximum + log(sum).
enum State : std::int64_t { maximum, sum, target_logit };

/// row = scale * (exp(row - maximum) / sum - one_hot), where one_hot is 1 at `target` if the target is one of the
/// columns.
template <class T>
void replace_row(T* row, std::int64_t columns, std::int64_t target, float most, double total, float scale) {
  const bool holds_target = target >= 0 && target < columns;
  // The target's entry is computed separately, so that p - 1 is rounded once.
  double likelihood = 0;
  if (holds_target)
    likelihood = std::exp(static_cast<double>(static_cast<float>(row[target])) - static_cast<double>(most)) / total;
  cpu::kernels<cpu::RowKernels>().of<T>().scaled_exponential(row, columns, most,
                                                             static_cast<float>(static_cast<double>(scale) / total));
  if (holds_target) row[target] = T(static_cast<float>(static_cast<double>(scale) * (likelihood - 1)));
}

/// Computes every row's loss in double, then calls finish(row, maximum, sum), which may replace the row. Adds the
/// losses in row order, independent of the number of threads.
template <class T, class Op, class Finish>
void sum_losses(Cpu::Stream& stream, const Op& op, Scratch memory, const Finish& finish) {
  const Tensor<const T> logits = op.logits;
  require_in_vocabulary(op.targets, logits.columns(), "cross_entropy: target", " in row ");
  const auto& kernel = cpu::kernels<cpu::RowKernels>().of<T>();
  const Tensor<double> losses = memory.as<double>({logits.rows()});
  cpu::for_rows(stream, logits.rows(), op.cost().bytes, [&](std::int64_t row) {
    float most = 0;
    double total = 0;
    kernel.maximum_and_sum(logits.row(row), logits.columns(), &most, &total);
    const double target = static_cast<float>(logits.row(row)[op.targets[row]]);
    losses[row] = std::log(total) + (static_cast<double>(most) - target);
    finish(row, most, total);
  });
  for (std::int64_t row = 0; row < logits.rows(); ++row) op.loss[0] += losses[row];
}

}  // namespace

template <ComputedBy<Cpu> T, WeightFor<T> W>
void run(Cpu::Stream& stream, const Embedding<T, W>& op) {
  require_in_vocabulary(op.tokens, op.table.rows(), "embedding: token", " at position ");
  const std::int64_t columns = op.table.columns();
  cpu::for_rows(stream, op.tokens.numel(), op.cost().bytes, [&](std::int64_t t) {
    const W* const row = op.table.row(op.tokens[t]);
    if constexpr (std::is_same_v<T, W>)
      std::memcpy(static_cast<void*>(op.out.row(t)), row, static_cast<std::size_t>(columns) * sizeof(T));
    else
      cpu::kernels<cpu::ElementwiseKernels>().of<T>().from_float(row, op.out.row(t), columns);
  });
}

template <ComputedBy<Cpu> T>
void run(Cpu::Stream& stream, const EmbeddingBackward<T>& op) {
  const Tensor<float>& dtable = op.dtable;
  require_in_vocabulary(op.tokens, dtable.rows(), "embedding: token", " at position ");
  if (op.write == Write::overwrite) run(stream, Fill<float>{.y = dtable});
  // A token may occur many times, so threads divide the columns instead of the tokens. Each sum is then added in token
  // order.
  const auto& kernel = cpu::kernels<cpu::ElementwiseKernels>().of<T>();
  const cpu::Division columns{.count = dtable.columns(), .step = 16, .bytes = 3 * op.dy.bytes()};
  cpu::for_parts(stream, columns, [&](std::int64_t begin, std::int64_t end, int) {
    for (std::int64_t t = 0; t < op.tokens.numel(); ++t)
      kernel.add_to_float(op.dy.row(t) + begin, dtable.row(op.tokens[t]) + begin, end - begin);
  });
}

template <ComputedBy<Cpu> T>
std::int64_t scratch(const Cpu::Planner&, const CrossEntropy<T>& op) {
  return op.logits.rows() * std::int64_t{sizeof(double)};
}
template <ComputedBy<Cpu> T>
std::int64_t scratch(const Cpu::Planner&, const CrossEntropyLoss<T>& op) {
  return op.logits.rows() * std::int64_t{sizeof(double)};
}

template <ComputedBy<Cpu> T>
void run(Cpu::Stream& stream, const CrossEntropy<T>& op, Scratch memory) {
  sum_losses<T>(stream, op, memory, [&](std::int64_t row, float most, double total) {
    replace_row(op.logits.row(row), op.logits.columns(), op.targets[row], most, total, op.scale);
  });
}

template <ComputedBy<Cpu> T>
void run(Cpu::Stream& stream, const CrossEntropyLoss<T>& op, Scratch memory) {
  sum_losses<T>(stream, op, memory, [](std::int64_t, float, double) {});
}

template <ComputedBy<Cpu> T>
void run(Cpu::Stream& stream, const CrossEntropyFold<T>& op) {
  const Tensor<const T>& logits = op.logits;
  const auto& kernel = cpu::kernels<cpu::RowKernels>().of<T>();
  cpu::for_rows(stream, logits.rows(), op.cost().bytes, [&](std::int64_t row) {
    double* const so_far = op.state.row(row);
    if (op.first == 0) so_far[maximum] = -std::numeric_limits<double>::infinity();
    if (op.first == 0) so_far[sum] = so_far[target_logit] = 0;
    float block_most = 0;
    double block_sum = 0;
    kernel.maximum_and_sum(logits.row(row), logits.columns(), &block_most, &block_sum);
    const double most = std::max(so_far[maximum], static_cast<double>(block_most));
    so_far[sum] =
        so_far[sum] * std::exp(so_far[maximum] - most) + block_sum * std::exp(static_cast<double>(block_most) - most);
    so_far[maximum] = most;
    const std::int64_t target = op.targets[row] - op.first;
    if (target >= 0 && target < logits.columns())
      so_far[target_logit] = static_cast<double>(static_cast<float>(logits.row(row)[target]));
  });
}

void run(Cpu::Stream&, const CrossEntropySum& op) {
  for (std::int64_t row = 0; row < op.state.rows(); ++row) {
    const double* const whole = op.state.row(row);
    op.loss[0] += std::log(whole[sum]) + (whole[maximum] - whole[target_logit]);
  }
}

template <ComputedBy<Cpu> T>
void run(Cpu::Stream& stream, const CrossEntropyGradient<T>& op) {
  cpu::for_rows(stream, op.logits.rows(), op.cost().bytes, [&](std::int64_t row) {
    replace_row(op.logits.row(row), op.logits.columns(), op.targets[row] - op.first,
                static_cast<float>(op.state.row(row)[maximum]), op.state.row(row)[sum], op.scale);
  });
}

FSDP_RUN_INSTANCES(Cpu, Embedding)
template void run(Cpu::Stream&, const Embedding<bf16, float>&);
FSDP_RUN_INSTANCES(Cpu, EmbeddingBackward)
FSDP_RUN_INSTANCES_IN_SCRATCH(Cpu, CrossEntropy)
FSDP_RUN_INSTANCES_IN_SCRATCH(Cpu, CrossEntropyLoss)
FSDP_RUN_INSTANCES(Cpu, CrossEntropyFold)
FSDP_RUN_INSTANCES(Cpu, CrossEntropyGradient)

}  // namespace fsdp::device
