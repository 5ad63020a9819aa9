// SPDX-License-Identifier: Apache-2.0
/// @file
/// The peak rate for MFU (model FLOPs utilization): the measured rate of a large matmul.
#pragma once

#include <algorithm>
#include <chrono>
#include <cstdint>
#include <limits>
#include <span>
#include <string>
#include <vector>

#include <tessera/comm/ranks.hpp>
#include <tessera/fsdp/core/dtype.hpp>
#include <tessera/fsdp/device/cpu.hpp>
#include <tessera/fsdp/device/memory.hpp>
#include <tessera/fsdp/device/meta.hpp>
#include <tessera/fsdp/device/operations.hpp>
#include <tessera/trainer/report/metrics.hpp>

namespace fsdp::report {

/// Returns the name of a measured peak, such as "matmul bf16 1024^3 on 2 x 1 threads, measured 0.4 TFLOP/s".
std::string peak_name(DType dtype, std::int64_t size, int ranks, int threads, double flops_per_second);

/// Fills contiguous memory with numbers in [-0.5, 0.5) of which no two neighbours are equal, as in training. A GPU
/// multiplies equal numbers faster than different ones, since they draw less power.
template <class Device, class T>
void fill_with_noise(typename Device::Queue& queue, const Tensor<T>& tensor) {
  std::vector<T> values(static_cast<std::size_t>(std::min<std::int64_t>(tensor.numel(), std::int64_t{1} << 18)));
  std::uint32_t state = 0x9e3779b9u;
  for (T& value : values) {
    state = state * 1664525u + 1013904223u;
    value = T(static_cast<float>(state >> 8) * 0x1p-24f - 0.5f);
  }
  std::int64_t done = std::ssize(values);
  device::move<Device>(queue, values.data(), tensor.data(), done);
  for (std::int64_t count = 0; done < tensor.numel(); done += count) {
    count = std::min(done, tensor.numel() - done);
    device::move<Device, T>(queue, tensor.data(), tensor.data() + done, count);
  }
  queue.synchronize();  // `values` must live until the copy is done
}

/// Measures a matmul of [size, size] matrices in the compute type on all ranks at once. Returns the seconds of the best
/// of several repeats on the slowest rank. Collective.
template <class Device, class Compute>
double square_matmul_seconds(const comm::Ranks& ranks, int threads, std::int64_t size) {
  using Meta = device::MetaFor<Device>;
  constexpr int repeats = 8;
  const auto multiply = [&](auto& stream, Compute* memory) {
    const Tensor<const Compute> a(memory, {size, size}), b(memory + size * size, {size, size});
    device::enqueue(
        stream, device::Matmul<Compute>{.a = a, .b = b, .c = Tensor<Compute>(memory + 2 * size * size, {size, size})});
  };
  auto planned = Meta::Arena::unbounded();
  typename Meta::Stream planner(planned, threads);
  multiply(planner, reinterpret_cast<Compute*>(Meta::unbacked(0)));

  device::Ledger ledger;
  const device::Block<Device> block(ledger, device::MemoryKind::scratch,
                                    3 * size * size * std::int64_t{sizeof(Compute)});
  auto* const memory = reinterpret_cast<Compute*>(block.data());
  typename Device::Arena arena(ledger, planned.peak() + device::alignment);
  typename Device::Stream stream(arena, threads);
  fill_with_noise<Device>(stream, Tensor<Compute>(memory, {2 * size, size}));
  double best = std::numeric_limits<double>::max();
  for (int i = 0; i < repeats; ++i) {
    stream.synchronize();
    ranks.barrier({"measuring the matmul peak"});
    const auto begin = std::chrono::steady_clock::now();
    multiply(stream, memory);
    stream.synchronize();
    const double seconds = std::chrono::duration<double>(std::chrono::steady_clock::now() - begin).count();
    if (i > 0 && seconds < best) best = seconds;
  }
  ranks.reduce(std::span<double>(&best, 1), comm::Reduction::max, {"matmul peak"});
  return best;
}

/// Measures the matmul rate of all ranks together, with matrices large enough to take a millisecond (at most 8192^3).
/// Takes a fraction of a second. Collective.
template <class Device, class Compute>
MatmulPeak measure_matmul_peak(const comm::Ranks& ranks, int threads) {
  std::int64_t size = 512;
  double seconds = square_matmul_seconds<Device, Compute>(ranks, threads, size);
  while (seconds < 1e-3 && size < 8192) seconds = square_matmul_seconds<Device, Compute>(ranks, threads, size *= 2);
  const double rate = 2.0 * static_cast<double>(size * size * size) * ranks.size() / seconds;
  return {.flops_per_second = rate, .name = peak_name(dtype_of<Compute>(), size, ranks.size(), threads, rate)};
}

/// Instantiated in the library.
/// @{
extern template MatmulPeak measure_matmul_peak<device::Cpu, float>(const comm::Ranks&, int);
extern template MatmulPeak measure_matmul_peak<device::Cpu, bf16>(const comm::Ranks&, int);
/// @}

}  // namespace fsdp::report
