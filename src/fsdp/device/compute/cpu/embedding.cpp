// SPDX-License-Identifier: Apache-2.0
/// @file
/// Embedding lookup and its gradient.
#include <cstring>

#include <tessera/fsdp/device/compute/cpu.hpp>

#include "../../cpu/threads.hpp"
#include "kernels/tables.hpp"

namespace fsdp::device {
namespace {

void require_tokens(const Tensor<const std::int32_t>& tokens, std::int64_t vocabulary) {
  for (std::int64_t t = 0; t < tokens.numel(); ++t)
    require<InputError>(tokens[t] >= 0 && tokens[t] < vocabulary, "embedding: token ", tokens[t], " at position ", t,
                        " is outside the vocabulary of ", vocabulary);
}

}  // namespace

template <ComputedBy<Cpu> T>
void run(Cpu::Stream& stream, const Embedding<T>& op) {
  require_tokens(op.tokens, op.table.rows());
  const auto row_bytes = static_cast<std::size_t>(op.table.columns()) * sizeof(T);
  const cpu::Division rows{.count = op.tokens.numel(), .step = 1, .bytes = op.cost().bytes};
  cpu::for_parts(stream, rows, [&](std::int64_t begin, std::int64_t end, int) {
    for (std::int64_t t = begin; t < end; ++t)
      std::memcpy(static_cast<void*>(op.out.row(t)), op.table.row(op.tokens[t]), row_bytes);
  });
}

template <ComputedBy<Cpu> T>
void run(Cpu::Stream& stream, const EmbeddingBackward<T>& op) {
  const Tensor<float>& dtable = op.dtable;
  require_tokens(op.tokens, dtable.rows());
  if (op.write == Write::overwrite)
    cpu::for_elements(stream, dtable.shape(), dtable.contiguous(), dtable.bytes(),
                      [&](std::int64_t row, std::int64_t begin, std::int64_t end) {
                        std::memset(dtable.row(row) + begin, 0, static_cast<std::size_t>(end - begin) * sizeof(float));
                      });
  // A token may occur many times, so threads divide the columns instead of the tokens. Each sum is then added in token
  // order.
  const auto& kernel = cpu::kernels<cpu::ElementwiseKernels>().of<T>();
  const cpu::Division columns{.count = dtable.columns(), .step = 16, .bytes = 3 * op.dy.bytes()};
  cpu::for_parts(stream, columns, [&](std::int64_t begin, std::int64_t end, int) {
    for (std::int64_t t = 0; t < op.tokens.numel(); ++t)
      kernel.add_to_float(op.dy.row(t) + begin, dtable.row(op.tokens[t]) + begin, end - begin);
  });
}

FSDP_RUN_INSTANCES(Cpu, Embedding)
FSDP_RUN_INSTANCES(Cpu, EmbeddingBackward)

}  // namespace fsdp::device
