// SPDX-License-Identifier: Apache-2.0
/// @file
/// RMS norm, forward and backward.
#include <algorithm>

#include <fsdp/core/checked.hpp>
#include <fsdp/device/cpu.hpp>

#include "kernels/tables.hpp"
#include "threads.hpp"

namespace fsdp::device {

template <ComputedBy<Cpu> T>
void run(Cpu::Stream& stream, const RmsNorm<T>& op) {
  const auto& kernel = cpu::kernels<cpu::NormKernels>().of<T>();
  const cpu::Division rows{.count = op.x.rows(), .step = 1, .bytes = op.cost().bytes};
  cpu::for_parts(stream, rows, [&](std::int64_t begin, std::int64_t end, int) {
    kernel.forward(op.x.row(begin), op.x.row_stride(), op.weight.data(), op.eps, op.y.row(begin), op.y.row_stride(),
                   op.rstd.data() + begin, end - begin, op.x.columns());
  });
}

namespace {

/// Floats from one thread's partial sum to the next.
std::int64_t partial_stride(std::int64_t columns) { return round_up(columns, 16); }

/// Rows of partial sums: a chunk for each thread and, where several add up dw, a sum for each.
std::int64_t partial_rows(std::int64_t threads, bool wants_dw) { return (threads > 1 && wants_dw ? 2 : 1) * threads; }

}  // namespace

template <ComputedBy<Cpu> T>
std::int64_t scratch(const Cpu::Planner& planner, const RmsNormBackward<T>& op) {
  return partial_rows(planner.threads(), op.wants_dw()) * partial_stride(op.x.columns()) * std::int64_t{sizeof(float)};
}

template <ComputedBy<Cpu> T>
void run(Cpu::Stream& stream, const RmsNormBackward<T>& op, Scratch memory) {
  const auto& kernel = cpu::kernels<cpu::NormKernels>().of<T>();
  const Tensor<float>& dw = op.dw;
  const std::int64_t columns = op.x.columns();
  if (op.wants_dw() && op.dw_write == Write::overwrite) std::fill_n(dw.data(), columns, 0.0f);

  // Rows are summed in chunks, chunks into one sum a thread, and those into dw in the order of the threads: over long
  // sequences a plain float sum would lose digits.
  constexpr std::int64_t chunk_rows = 128;
  const int threads = stream.threads();
  const auto& sums = cpu::kernels<cpu::ElementwiseKernels>().of<float>();
  const auto partials = memory.as<float>({partial_rows(threads, op.wants_dw()), partial_stride(columns)});
  std::fill_n(partials.data(), partials.numel(), 0.0f);
  const auto sum_of = [&](int part) { return threads == 1 ? dw.data() : partials.row(threads + part); };
  const cpu::Division rows{.count = op.x.rows(), .step = 1, .bytes = op.cost().bytes};
  cpu::for_parts(stream, rows, [&](std::int64_t begin, std::int64_t end, int part) {
    float* const chunk = partials.row(part);
    for (std::int64_t row = begin; row < end; row += chunk_rows) {
      std::fill_n(chunk, columns, 0.0f);
      kernel.backward(op.x.row(row), op.x.row_stride(), op.weight.data(), op.rstd.data() + row, op.dy.row(row),
                      op.dy.row_stride(), op.dx.row(row), op.dx.row_stride(), op.dx_write == Write::accumulate, chunk,
                      std::min(chunk_rows, end - row), columns);
      if (op.wants_dw()) sums.add(chunk, sum_of(part), columns);
    }
  });
  if (threads == 1 || !op.wants_dw()) return;
  for (int part = 0; part < threads; ++part) sums.add(sum_of(part), dw.data(), columns);
}

template void run(Cpu::Stream&, const RmsNorm<float>&);
template void run(Cpu::Stream&, const RmsNorm<bf16>&);
template std::int64_t scratch(const Cpu::Planner&, const RmsNormBackward<float>&);
template std::int64_t scratch(const Cpu::Planner&, const RmsNormBackward<bf16>&);
template void run(Cpu::Stream&, const RmsNormBackward<float>&, Scratch);
template void run(Cpu::Stream&, const RmsNormBackward<bf16>&, Scratch);

}  // namespace fsdp::device
