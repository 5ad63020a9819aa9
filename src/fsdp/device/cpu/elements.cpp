// SPDX-License-Identifier: Apache-2.0
/// @file
/// Add, copy, fill, scale, and digests of tensors; and the library's instantiations of enqueue.
#include <algorithm>
#include <cstring>
#include <type_traits>

#include <tessera/fsdp/device/cpu.hpp>
#include <tessera/fsdp/device/meta.hpp>
#include <tessera/fsdp/device/operations/elements.hpp>

#include "../host_device.hpp"
#include "kernels/tables.hpp"
#include "threads.hpp"

namespace fsdp::device {
namespace {

template <class T>
const cpu::ElementwiseFunctions<T>& elementwise() {
  return cpu::kernels<cpu::ElementwiseKernels>().of<T>();
}

}  // namespace

template <ComputedBy<Cpu> T>
void run(Cpu::Stream& stream, const Add<T>& op) {
  cpu::for_elements(stream, op.cost().bytes, elementwise<T>().add, op.x, op.y);
}

template <ComputedBy<Cpu> X, ComputedBy<Cpu> Y>
void run(Cpu::Stream& stream, const Copy<X, Y>& op) {
  const auto copy = [](const X* from, Y* to, std::int64_t count) {
    if constexpr (std::is_same_v<X, Y>)
      std::memcpy(static_cast<void*>(to), from, static_cast<std::size_t>(count) * sizeof(X));
    else if constexpr (std::is_same_v<X, float>)
      elementwise<Y>().from_float(from, to, count);
    else
      elementwise<X>().to_float(from, to, count);
  };
  cpu::for_elements(stream, op.cost().bytes, copy, op.x, op.y);
}

template <ComputedBy<Cpu> T>
void run(Cpu::Stream& stream, const Fill<T>& op) {
  const auto fill = [&](T* y, std::int64_t count) { elementwise<T>().fill(y, op.value, count); };
  cpu::for_elements(stream, op.cost().bytes, fill, op.y);
}

void run(Cpu::Stream& stream, const Fill<double>& op) {
  const auto fill = [&](double* y, std::int64_t count) { std::fill_n(y, count, static_cast<double>(op.value)); };
  cpu::for_elements(stream, op.cost().bytes, fill, op.y);
}

template <ComputedBy<Cpu> X, ComputedBy<Cpu> Y>
void run(Cpu::Stream& stream, const Scale<X, Y>& op) {
  const Dropout& dropout = op.dropout;
  const bool drops = dropout.rate > 0;
  cpu::for_pieces(stream, op.y.shape(), !drops && op.x.contiguous() && op.y.contiguous(), op.cost().bytes,
                  [&](std::int64_t row, std::int64_t begin, std::int64_t end) {
                    const cpu::Scaling scaling{.factor = op.factor / (1 - dropout.rate),
                                               .accumulate = op.write == Write::accumulate,
                                               .dropped_below = dropped_below(static_cast<double>(dropout.rate)),
                                               .row = drops ? dropout_row(dropout.key, dropout.first_row + row) : 0,
                                               .column = static_cast<std::uint32_t>(dropout.first_column + begin)};
                    if constexpr (std::is_same_v<X, Y>)
                      elementwise<X>().scale(op.x.row(row) + begin, op.y.row(row) + begin, scaling, end - begin);
                    else
                      elementwise<X>().scale_to_float(op.x.row(row) + begin, op.y.row(row) + begin, scaling,
                                                      end - begin);
                  });
}

template <ComputedBy<Cpu> T>
std::int64_t scratch(const Cpu::Planner&, const AddDigest<T>& op) {
  return op.chunks() * std::int64_t{sizeof(std::int64_t)};
}

template <ComputedBy<Cpu> T>
void run(Cpu::Stream& stream, const AddDigest<T>& op, Scratch memory) {
  const Tensor<std::uint64_t> partials = memory.as<std::uint64_t>({op.chunks()});
  cpu::for_rows(stream, partials.numel(), op.cost().bytes, [&](std::int64_t at) {
    const std::int64_t first = at * op.chunk;
    const cpu::DigestSums sums = elementwise<T>().digest(op.x.data() + first, std::min(op.chunk, op.x.numel() - first));
    const auto before = static_cast<std::uint64_t>(op.begin + first);
    partials[at] = op.key * (2 * (before * sums.bits + sums.by_index) + sums.bits);
  });
  auto sum = static_cast<std::uint64_t>(op.sum[0]);
  for (std::int64_t at = 0; at < partials.numel(); ++at) sum += partials[at];
  op.sum[0] = static_cast<std::int64_t>(sum);
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
FSDP_RUN_INSTANCES_IN_SCRATCH(Cpu, AddDigest)
FSDP_ENQUEUE(template, Cpu::Stream)
FSDP_ENQUEUE(template, Meta::Stream)

}  // namespace fsdp::device
