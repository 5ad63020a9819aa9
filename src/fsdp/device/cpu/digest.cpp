// SPDX-License-Identifier: Apache-2.0
/// @file
/// Digests of tensors.
#include <tessera/fsdp/device/operations/digest.hpp>

#include <algorithm>

#include <tessera/fsdp/device/cpu.hpp>

#include "kernels/tables.hpp"
#include "threads.hpp"

namespace fsdp::device {

template <ComputedBy<Cpu> T>
std::int64_t scratch(const Cpu::Planner&, const AddDigest<T>& op) {
  return op.chunks() * std::int64_t{sizeof(std::int64_t)};
}

template <ComputedBy<Cpu> T>
void run(Cpu::Stream& stream, const AddDigest<T>& op, Scratch memory) {
  const auto& kernel = cpu::kernels<cpu::DigestKernels>().of<T>();
  const Tensor<std::int64_t> partials = memory.as<std::int64_t>({op.chunks()});
  const cpu::Division chunks{.count = partials.numel(), .step = 1, .bytes = op.cost().bytes};
  cpu::for_parts(stream, chunks, [&](std::int64_t begin, std::int64_t end, int) {
    for (std::int64_t at = begin; at < end; ++at) {
      const std::int64_t first = at * op.chunk;
      const cpu::DigestSums sums = kernel.digest(op.x.data() + first, std::min(op.chunk, op.x.numel() - first));
      const auto before = static_cast<std::uint64_t>(op.begin + first);
      partials[at] = static_cast<std::int64_t>(op.key * (2 * (before * sums.bits + sums.by_index) + sums.bits));
    }
  });
  auto sum = static_cast<std::uint64_t>(op.sum[0]);
  for (std::int64_t at = 0; at < partials.numel(); ++at) sum += static_cast<std::uint64_t>(partials[at]);
  op.sum[0] = static_cast<std::int64_t>(sum);
}

FSDP_RUN_INSTANCES_IN_SCRATCH(Cpu, AddDigest)

}  // namespace fsdp::device
