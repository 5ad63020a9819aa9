// SPDX-License-Identifier: Apache-2.0
/// @file
/// RMS norm, forward and backward.
#include <algorithm>

#include <tessera/fsdp/device/compute/cpu.hpp>

#include "../../cpu/threads.hpp"
#include "kernels/tables.hpp"

namespace fsdp::device {

template <ComputedBy<Cpu> T, WeightFor<T> W>
void run(Cpu::Stream& stream, const RmsNorm<T, W>& op) {
  const cpu::NormFunctions<T, W>& kernel = cpu::kernels<cpu::RowKernels>();
  const std::int64_t width = op.weight.numel(), heads = op.heads();
  const std::int64_t block = heads == 1 ? op.x.rows() : 16;  // number of rows whose heads stay in the cache
  const cpu::Division rows{.count = op.x.rows(), .step = 1, .bytes = op.cost().bytes};
  cpu::for_parts(stream, rows, [&](std::int64_t begin, std::int64_t end, int) {
    for (std::int64_t row = begin; row < end; row += block)
      for (std::int64_t head = 0; head < heads; ++head)
        kernel.norm(op.x.row(row) + head * width, op.x.row_stride(), op.weight.data(), op.eps,
                    op.y.row(row) + head * width, op.y.row_stride(), op.rstd.data() + head * op.x.rows() + row,
                    std::min(block, end - row), width);
  });
}

template <ComputedBy<Cpu> T, WeightFor<T> W>
std::int64_t scratch(const Cpu::Planner& planner, const RmsNormBackward<T, W>& op) {
  return cpu::row_sums_scratch(planner.threads(), op.weight.numel(), op.wants_dw());
}

template <ComputedBy<Cpu> T, WeightFor<T> W>
void run(Cpu::Stream& stream, const RmsNormBackward<T, W>& op, Scratch memory) {
  const cpu::NormFunctions<T, W>& kernel = cpu::kernels<cpu::RowKernels>();
  const std::int64_t width = op.weight.numel();
  cpu::sum_rows(stream, {.count = op.x.rows(), .bytes = op.cost().bytes}, op.dw, op.dw_write, memory,
                [&](std::int64_t row, std::int64_t count, float* chunk) {
                  for (std::int64_t head = 0; head < op.heads(); ++head)
                    kernel.norm_backward(op.x.row(row) + head * width, op.x.row_stride(), op.weight.data(),
                                         op.rstd.data() + head * op.x.rows() + row, op.dy.row(row) + head * width,
                                         op.dy.row_stride(), op.dx.row(row) + head * width, op.dx.row_stride(),
                                         op.dx_write == Write::accumulate, chunk, count, width);
                });
}

FSDP_RUN_INSTANCES(Cpu, RmsNorm)
FSDP_RUN_INSTANCES_IN_SCRATCH(Cpu, RmsNormBackward)
template void run(Cpu::Stream&, const RmsNorm<bf16, float>&);
template std::int64_t scratch(const Cpu::Planner&, const RmsNormBackward<bf16, float>&);
template void run(Cpu::Stream&, const RmsNormBackward<bf16, float>&, Scratch);

}  // namespace fsdp::device
