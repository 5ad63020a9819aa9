// SPDX-License-Identifier: Apache-2.0
/// @file
/// The bias of a linear layer, forward and backward.
#include <tessera/fsdp/device/compute/cpu.hpp>

#include "../../cpu/threads.hpp"
#include "kernels/tables.hpp"
#include "row_sums.hpp"

namespace fsdp::device {

template <ComputedBy<Cpu> T>
void run(Cpu::Stream& stream, const AddBias<T>& op) {
  const auto& kernel = cpu::kernels<cpu::ElementwiseKernels>().of<T>();
  const cpu::Division rows{.count = op.y.rows(), .step = 1, .bytes = op.cost().bytes};
  cpu::for_parts(stream, rows, [&](std::int64_t begin, std::int64_t end, int) {
    for (std::int64_t row = begin; row < end; ++row) kernel.add(op.bias.data(), op.y.row(row), op.y.columns());
  });
}

template <ComputedBy<Cpu> T>
std::int64_t scratch(const Cpu::Planner& planner, const BiasBackward<T>& op) {
  return cpu::RowSums::scratch(planner.threads(), op.dbias.numel());
}

template <ComputedBy<Cpu> T>
void run(Cpu::Stream& stream, const BiasBackward<T>& op, Scratch memory) {
  const auto& kernel = cpu::kernels<cpu::ElementwiseKernels>().of<T>();
  const cpu::RowSums sums(stream.threads(), op.dbias, op.write, memory);
  const cpu::Division rows{.count = op.dy.rows(), .step = 1, .bytes = op.cost().bytes};
  cpu::for_parts(stream, rows, [&](std::int64_t begin, std::int64_t end, int thread) {
    sums.add(begin, end, thread, [&](std::int64_t row, std::int64_t count, float* chunk) {
      for (std::int64_t i = row; i < row + count; ++i) kernel.add_to_float(op.dy.row(i), chunk, op.dy.columns());
    });
  });
  sums.finish();
}

FSDP_RUN_INSTANCES(Cpu, AddBias)
FSDP_RUN_INSTANCES_IN_SCRATCH(Cpu, BiasBackward)

}  // namespace fsdp::device
