// SPDX-License-Identifier: Apache-2.0
/// @file
/// add, copy, fill and SwiGLU.
#include <cstring>
#include <type_traits>

#include <fsdp/device/cpu.hpp>

#include "../costs.hpp"
#include "kernels/tables.hpp"
#include "threads.hpp"

namespace fsdp::device {

template <class T>
void Cpu::add(Stream& stream, Tensor<const T> x, Tensor<T> y) {
  const costs::Cost cost = costs::add(x, y);
  stream.counters.elementwise_bytes += cost.bytes;
  const auto& kernel = cpu::kernels<cpu::ElementwiseKernels>().of<T>();
  cpu::for_elements(stream, y.shape(), x.contiguous() && y.contiguous(), cost.bytes,
                    [&](std::int64_t row, std::int64_t begin, std::int64_t end) {
                      kernel.add(x.row(row) + begin, y.row(row) + begin, end - begin);
                    });
}

template <class X, class Y>
void Cpu::copy(Stream& stream, Tensor<const X> x, Tensor<Y> y) {
  const costs::Cost cost = costs::copy(x, y);
  stream.counters.elementwise_bytes += cost.bytes;
  cpu::for_elements(stream, y.shape(), x.contiguous() && y.contiguous(), cost.bytes,
                    [&](std::int64_t row, std::int64_t begin, std::int64_t end) {
                      const X* const from = x.row(row) + begin;
                      Y* const to = y.row(row) + begin;
                      const auto& kernels = cpu::kernels<cpu::ElementwiseKernels>();
                      if constexpr (std::is_same_v<X, Y>)
                        std::memcpy(static_cast<void*>(to), from, static_cast<std::size_t>(end - begin) * sizeof(X));
                      else if constexpr (std::is_same_v<X, float>)
                        kernels.of<Y>().from_float(from, to, end - begin);
                      else
                        kernels.of<X>().to_float(from, to, end - begin);
                    });
}

template <class T>
void Cpu::fill(Stream& stream, Tensor<T> y, float value) {
  const costs::Cost cost = costs::fill(y);
  stream.counters.elementwise_bytes += cost.bytes;
  cpu::for_elements(stream, y.shape(), y.contiguous(), cost.bytes,
                    [&](std::int64_t row, std::int64_t begin, std::int64_t end) {
                      if constexpr (Real<T>)
                        cpu::kernels<cpu::ElementwiseKernels>().of<T>().fill(y.row(row) + begin, value, end - begin);
                      else
                        std::fill(y.row(row) + begin, y.row(row) + end, static_cast<T>(value));
                    });
}

template <class T>
void Cpu::swiglu(Stream& stream, Tensor<const T> gate, Tensor<const T> up, Tensor<T> h) {
  const costs::Cost cost = costs::swiglu(gate, up, h);
  stream.counters.elementwise_bytes += cost.bytes;
  const auto& kernel = cpu::kernels<cpu::ElementwiseKernels>().of<T>();
  cpu::for_elements(stream, h.shape(), gate.contiguous() && up.contiguous() && h.contiguous(), cost.bytes,
                    [&](std::int64_t row, std::int64_t begin, std::int64_t end) {
                      kernel.swiglu(gate.row(row) + begin, up.row(row) + begin, h.row(row) + begin, end - begin);
                    });
}

template <class T>
void Cpu::swiglu_backward(Stream& stream, Tensor<T> gate, Tensor<T> up, Tensor<T> dh) {
  const costs::Cost cost = costs::swiglu_backward(gate, up, dh);
  stream.counters.elementwise_bytes += cost.bytes;
  const auto& kernel = cpu::kernels<cpu::ElementwiseKernels>().of<T>();
  cpu::for_elements(stream, dh.shape(), gate.contiguous() && up.contiguous() && dh.contiguous(), cost.bytes,
                    [&](std::int64_t row, std::int64_t begin, std::int64_t end) {
                      kernel.swiglu_backward(gate.row(row) + begin, up.row(row) + begin, dh.row(row) + begin,
                                             end - begin);
                    });
}

template void Cpu::add<float>(Stream&, Tensor<const float>, Tensor<float>);
template void Cpu::add<bf16>(Stream&, Tensor<const bf16>, Tensor<bf16>);
template void Cpu::copy<float, float>(Stream&, Tensor<const float>, Tensor<float>);
template void Cpu::copy<float, bf16>(Stream&, Tensor<const float>, Tensor<bf16>);
template void Cpu::copy<bf16, float>(Stream&, Tensor<const bf16>, Tensor<float>);
template void Cpu::copy<bf16, bf16>(Stream&, Tensor<const bf16>, Tensor<bf16>);
template void Cpu::fill<float>(Stream&, Tensor<float>, float);
template void Cpu::fill<bf16>(Stream&, Tensor<bf16>, float);
template void Cpu::fill<double>(Stream&, Tensor<double>, float);
template void Cpu::swiglu<float>(Stream&, Tensor<const float>, Tensor<const float>, Tensor<float>);
template void Cpu::swiglu<bf16>(Stream&, Tensor<const bf16>, Tensor<const bf16>, Tensor<bf16>);
template void Cpu::swiglu_backward<float>(Stream&, Tensor<float>, Tensor<float>, Tensor<float>);
template void Cpu::swiglu_backward<bf16>(Stream&, Tensor<bf16>, Tensor<bf16>, Tensor<bf16>);

}  // namespace fsdp::device
