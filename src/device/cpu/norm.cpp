// SPDX-License-Identifier: Apache-2.0
/// @file
/// RMS norm, forward and backward.
#include <algorithm>

#include <fsdp/device/cpu.hpp>

#include "../costs.hpp"
#include "kernels/tables.hpp"
#include "threads.hpp"

namespace fsdp::device {

template <class T>
void Cpu::rms_norm(Stream& stream, Tensor<const T> x, Tensor<const T> w, float eps, Tensor<T> y, Tensor<float> rstd) {
  const costs::Cost cost = costs::rms_norm(x, w, y, rstd);
  stream.counters.elementwise_bytes += cost.bytes;
  const auto& kernel = cpu::kernels<cpu::NormKernels>().of<T>();
  const cpu::Division rows{.count = x.rows(), .step = 1, .bytes = cost.bytes};
  cpu::for_parts(stream, rows, [&](std::int64_t begin, std::int64_t end, int) {
    kernel.forward(x.row(begin), x.row_stride(), w.data(), eps, y.row(begin), y.row_stride(), rstd.data() + begin,
                   end - begin, x.columns());
  });
}

template <class T>
void Cpu::rms_norm_backward(Stream& stream, Tensor<const T> x, Tensor<const T> w, Tensor<const float> rstd,
                            Tensor<const T> dy, Tensor<T> dx, Write dx_write, Tensor<float> dw, Write dw_write) {
  const costs::Cost cost = costs::rms_norm_backward(x, w, rstd, dy, dx, dx_write, dw, dw_write, stream.threads());
  stream.counters.elementwise_bytes += cost.bytes;
  const auto& kernel = cpu::kernels<cpu::NormKernels>().of<T>();
  const std::int64_t columns = x.columns();
  const bool wants_dw = dw.data() != nullptr;
  if (wants_dw && dw_write == Write::overwrite) std::fill_n(dw.data(), columns, 0.0f);

  // Rows are summed in chunks, chunks into one sum a thread, and those into dw in the order of the threads: over long
  // sequences a plain float sum would lose digits.
  constexpr std::int64_t chunk_rows = 128;
  const std::int64_t stride = costs::partial_stride(columns);
  const int threads = stream.threads();
  const auto& sums = cpu::kernels<cpu::ElementwiseKernels>().of<float>();
  Arena::Frame frame(stream.arena());
  const auto scratch =
      frame.allocate<float>({(threads > 1 && wants_dw ? 2 : 1) * threads, stride}, MemoryKind::scratch);
  std::fill_n(scratch.data(), scratch.numel(), 0.0f);
  const auto sum_of = [&](int part) { return threads == 1 ? dw.data() : scratch.row(threads + part); };
  const cpu::Division rows{.count = x.rows(), .step = 1, .bytes = cost.bytes};
  cpu::for_parts(stream, rows, [&](std::int64_t begin, std::int64_t end, int part) {
    float* const chunk = scratch.row(part);
    for (std::int64_t row = begin; row < end; row += chunk_rows) {
      std::fill_n(chunk, columns, 0.0f);
      kernel.backward(x.row(row), x.row_stride(), w.data(), rstd.data() + row, dy.row(row), dy.row_stride(),
                      dx.row(row), dx.row_stride(), dx_write == Write::accumulate, chunk,
                      std::min(chunk_rows, end - row), columns);
      if (wants_dw) sums.add(chunk, sum_of(part), columns);
    }
  });
  if (threads == 1 || !wants_dw) return;
  for (int part = 0; part < threads; ++part) sums.add(sum_of(part), dw.data(), columns);
}

template void Cpu::rms_norm<float>(Stream&, Tensor<const float>, Tensor<const float>, float, Tensor<float>,
                                   Tensor<float>);
template void Cpu::rms_norm<bf16>(Stream&, Tensor<const bf16>, Tensor<const bf16>, float, Tensor<bf16>, Tensor<float>);
template void Cpu::rms_norm_backward<float>(Stream&, Tensor<const float>, Tensor<const float>, Tensor<const float>,
                                            Tensor<const float>, Tensor<float>, Write, Tensor<float>, Write);
template void Cpu::rms_norm_backward<bf16>(Stream&, Tensor<const bf16>, Tensor<const bf16>, Tensor<const float>,
                                           Tensor<const bf16>, Tensor<bf16>, Write, Tensor<float>, Write);

}  // namespace fsdp::device
