// SPDX-License-Identifier: Apache-2.0
/// @file
/// Add, copy, fill, scale, and digests of tensors.
#include <algorithm>
#include <cstring>
#include <type_traits>

#include <tessera/fsdp/device/cpu.hpp>
#include <tessera/fsdp/device/operations/elements.hpp>

#include "../host_device.hpp"
#include "kernels/tables.hpp"
#include "threads.hpp"

namespace fsdp::device {

template <ComputedBy<Cpu> T>
void run(Cpu::Stream& stream, const Add<T>& op) {
  const auto& kernel = cpu::kernels<cpu::ElementwiseKernels>().of<T>();
  cpu::for_elements(stream, op.y.shape(), op.x.contiguous() && op.y.contiguous(), op.cost().bytes,
                    [&](std::int64_t row, std::int64_t begin, std::int64_t end) {
                      kernel.add(op.x.row(row) + begin, op.y.row(row) + begin, end - begin);
                    });
}

template <ComputedBy<Cpu> X, ComputedBy<Cpu> Y>
void run(Cpu::Stream& stream, const Copy<X, Y>& op) {
  cpu::for_elements(stream, op.y.shape(), op.x.contiguous() && op.y.contiguous(), op.cost().bytes,
                    [&](std::int64_t row, std::int64_t begin, std::int64_t end) {
                      const X* const from = op.x.row(row) + begin;
                      Y* const to = op.y.row(row) + begin;
                      const auto& kernels = cpu::kernels<cpu::ElementwiseKernels>();
                      if constexpr (std::is_same_v<X, Y>)
                        std::memcpy(static_cast<void*>(to), from, static_cast<std::size_t>(end - begin) * sizeof(X));
                      else if constexpr (std::is_same_v<X, float>)
                        kernels.of<Y>().from_float(from, to, end - begin);
                      else
                        kernels.of<X>().to_float(from, to, end - begin);
                    });
}

template <ComputedBy<Cpu> T>
void run(Cpu::Stream& stream, const Fill<T>& op) {
  const auto& kernel = cpu::kernels<cpu::ElementwiseKernels>().of<T>();
  cpu::for_elements(stream, op.y.shape(), op.y.contiguous(), op.cost().bytes,
                    [&](std::int64_t row, std::int64_t begin, std::int64_t end) {
                      kernel.fill(op.y.row(row) + begin, op.value, end - begin);
                    });
}

void run(Cpu::Stream& stream, const Fill<double>& op) {
  cpu::for_elements(stream, op.y.shape(), op.y.contiguous(), op.cost().bytes,
                    [&](std::int64_t row, std::int64_t begin, std::int64_t end) {
                      std::fill(op.y.row(row) + begin, op.y.row(row) + end, static_cast<double>(op.value));
                    });
}

template <ComputedBy<Cpu> X, ComputedBy<Cpu> Y>
void run(Cpu::Stream& stream, const Scale<X, Y>& op) {
  const auto& kernels = cpu::kernels<cpu::ElementwiseKernels>().of<X>();
  const Dropout& dropout = op.dropout;
  const bool drops = dropout.rate > 0;
  cpu::for_elements(stream, op.y.shape(), !drops && op.x.contiguous() && op.y.contiguous(), op.cost().bytes,
                    [&](std::int64_t row, std::int64_t begin, std::int64_t end) {
                      const cpu::Scaling scaling{.factor = op.factor / (1 - dropout.rate),
                                                 .accumulate = op.write == Write::accumulate,
                                                 .dropped_below = dropped_below(static_cast<double>(dropout.rate)),
                                                 .row = drops ? dropout_row(dropout.key, dropout.first_row + row) : 0,
                                                 .column = static_cast<std::uint32_t>(dropout.first_column + begin)};
                      if constexpr (std::is_same_v<X, Y>)
                        kernels.scale(op.x.row(row) + begin, op.y.row(row) + begin, scaling, end - begin);
                      else
                        kernels.scale_to_float(op.x.row(row) + begin, op.y.row(row) + begin, scaling, end - begin);
                    });
}

FSDP_RUN_INSTANCES(Cpu, Add)
template void run(Cpu::Stream&, const Copy<float, float>&);
template void run(Cpu::Stream&, const Copy<float, bf16>&);
template void run(Cpu::Stream&, const Copy<bf16, float>&);
template void run(Cpu::Stream&, const Copy<bf16, bf16>&);
FSDP_RUN_INSTANCES(Cpu, Fill)
template void run(Cpu::Stream&, const Scale<float, float>&);
template void run(Cpu::Stream&, const Scale<bf16, bf16>&);
template void run(Cpu::Stream&, const Scale<bf16, float>&);

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
