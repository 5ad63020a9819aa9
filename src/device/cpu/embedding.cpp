// SPDX-License-Identifier: Apache-2.0
/// @file
/// Rows of a table by token, and their gradient.
#include <cstring>

#include <fsdp/device/cpu.hpp>

#include "../costs.hpp"
#include "kernels/tables.hpp"
#include "threads.hpp"

namespace fsdp::device {
namespace {

void require_tokens(const Tensor<const std::int32_t>& tokens, std::int64_t vocabulary) {
  for (std::int64_t t = 0; t < tokens.numel(); ++t)
    require<InputError>(tokens[t] >= 0 && tokens[t] < vocabulary, "embedding: token ", tokens[t], " at position ", t,
                        " is outside the vocabulary of ", vocabulary);
}

}  // namespace

template <class T>
void Cpu::embedding(Stream& stream, Tensor<const T> table, Tensor<const std::int32_t> tokens, Tensor<T> out) {
  const costs::Cost cost = costs::embedding(table, tokens, out);
  require_tokens(tokens, table.rows());
  stream.counters.elementwise_bytes += cost.bytes;
  const auto row_bytes = static_cast<std::size_t>(table.columns()) * sizeof(T);
  const cpu::Division rows{.count = tokens.numel(), .step = 1, .bytes = cost.bytes};
  cpu::for_parts(stream, rows, [&](std::int64_t begin, std::int64_t end, int) {
    for (std::int64_t t = begin; t < end; ++t)
      std::memcpy(static_cast<void*>(out.row(t)), table.row(tokens[t]), row_bytes);
  });
}

template <class T>
void Cpu::embedding_backward(Stream& stream, Tensor<const std::int32_t> tokens, Tensor<const T> dy,
                             Tensor<float> dtable, Write write) {
  const costs::Cost cost = costs::embedding_backward(tokens, dy, dtable, write);
  require_tokens(tokens, dtable.rows());
  stream.counters.elementwise_bytes += cost.bytes;
  if (write == Write::overwrite)
    cpu::for_elements(stream, dtable.shape(), dtable.contiguous(), dtable.bytes(),
                      [&](std::int64_t row, std::int64_t begin, std::int64_t end) {
                        std::memset(dtable.row(row) + begin, 0, static_cast<std::size_t>(end - begin) * sizeof(float));
                      });
  // A token may occur many times, so threads share columns, not tokens: every sum runs in the order of the tokens.
  const auto& kernel = cpu::kernels<cpu::ElementwiseKernels>().of<T>();
  const cpu::Division columns{.count = dtable.columns(), .step = 16, .bytes = 3 * dy.bytes()};
  cpu::for_parts(stream, columns, [&](std::int64_t begin, std::int64_t end, int) {
    for (std::int64_t t = 0; t < tokens.numel(); ++t)
      kernel.add_to_float(dy.row(t) + begin, dtable.row(tokens[t]) + begin, end - begin);
  });
}

template void Cpu::embedding<float>(Stream&, Tensor<const float>, Tensor<const std::int32_t>, Tensor<float>);
template void Cpu::embedding<bf16>(Stream&, Tensor<const bf16>, Tensor<const std::int32_t>, Tensor<bf16>);
template void Cpu::embedding_backward<float>(Stream&, Tensor<const std::int32_t>, Tensor<const float>, Tensor<float>,
                                             Write);
template void Cpu::embedding_backward<bf16>(Stream&, Tensor<const std::int32_t>, Tensor<const bf16>, Tensor<float>,
                                            Write);

}  // namespace fsdp::device
