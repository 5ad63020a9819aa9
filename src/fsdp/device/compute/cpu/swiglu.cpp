// SPDX-License-Identifier: Apache-2.0
/// @file
/// SwiGLU, forward and backward.
#include <tessera/fsdp/device/compute/cpu.hpp>

#include "../../cpu/threads.hpp"
#include "kernels/tables.hpp"

namespace fsdp::device {

template <ComputedBy<Cpu> T>
void run(Cpu::Stream& stream, const SwiGlu<T>& op) {
  const auto& kernel = cpu::kernels<cpu::SwiGluKernels>().of<T>();
  cpu::for_elements(stream, op.h.shape(), op.gate.contiguous() && op.up.contiguous() && op.h.contiguous(),
                    op.cost().bytes, [&](std::int64_t row, std::int64_t begin, std::int64_t end) {
                      kernel.forward(op.gate.row(row) + begin, op.up.row(row) + begin, op.h.row(row) + begin,
                                     end - begin);
                    });
}

template <ComputedBy<Cpu> T>
void run(Cpu::Stream& stream, const SwiGluBackward<T>& op) {
  const auto& kernel = cpu::kernels<cpu::SwiGluKernels>().of<T>();
  cpu::for_elements(stream, op.dh.shape(), op.gate.contiguous() && op.up.contiguous() && op.dh.contiguous(),
                    op.cost().bytes, [&](std::int64_t row, std::int64_t begin, std::int64_t end) {
                      kernel.backward(op.gate.row(row) + begin, op.up.row(row) + begin, op.dh.row(row) + begin,
                                      end - begin);
                    });
}

FSDP_RUN_INSTANCES(Cpu, SwiGlu)
FSDP_RUN_INSTANCES(Cpu, SwiGluBackward)

}  // namespace fsdp::device
