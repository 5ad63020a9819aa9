// SPDX-License-Identifier: Apache-2.0
/// @file
/// Words and tables that the program prints, and the peak that MFU divides by.
#pragma once

#include <chrono>
#include <cstdint>
#include <limits>
#include <span>
#include <string>
#include <vector>

#include <comm/collectives.hpp>
#include <fsdp/device/memory.hpp>
#include <fsdp/device/meta.hpp>
#include <fsdp/device/operations.hpp>
#include <fsdp/module/sharded_module.hpp>
#include <fsdp/report/metrics.hpp>
#include <fsdp/report/trace.hpp>
#include <fsdp/sharding/schedule.hpp>

namespace fsdp::report {

/// What is about to be trained, in a few lines.
std::string start_text(const StartRecord& record, const std::string& data, std::int64_t training_windows,
                       std::int64_t held_out_windows, std::int64_t peak_bytes);

/// What was trained, and where it is.
std::string summary_text(const SummaryRecord& record);

/// "1.50 GiB", "12.0 MiB", "640 B".
std::string bytes_text(std::int64_t bytes);

/// "8,123".
std::string count_text(std::int64_t count);

/// The dry run's table: bytes by kind, and their sum.
std::string memory_table(const device::BytesByKind& bytes, const std::string& title);

/// A schedule, one task a line: "micro-batch 0  gather          block 1, slot 0".
std::string schedule_text(const sharding::Schedule& schedule, const sharding::Names& names);

/// {"loss": ..., "tokens": ...}
std::string mean_loss_json(double loss, std::int64_t tokens);

/// A task as a trace shows it, such as "forward 1", on the lane of computing or of communicating.
TraceEvent trace_event(const sharding::Task& task, int rank, double begin_seconds, double seconds);

/// A measured matmul rate of all ranks together.
struct MatmulPeak {
  double flops_per_second = 1;
  std::string name;
};

/// Name of a measured peak, such as "matmul bf16 1024^3, 2 x 1 threads, measured 0.40 TFLOP/s".
std::string peak_name(DType dtype, std::int64_t size, int ranks, int threads, double flops_per_second);

/// Seconds of one matmul of [size, size] matrices in the compute type, on every rank at once: the best of several, on
/// the slowest rank.
template <class Comm, class Model>
double square_matmul_seconds(Comm& communicator, ShardedModule<Model>& module, std::int64_t size) {
  using Module = ShardedModule<Model>;
  using Compute = typename Module::Compute;
  using Device = typename Module::Device;
  using Meta = device::MetaFor<Device>;
  constexpr int repeats = 8;
  const int threads = module.stream().threads();
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
  device::enqueue(stream, device::Fill<Compute>{.y = Tensor<Compute>(memory, {2 * size, size}), .value = 0.5f});
  double best = std::numeric_limits<double>::max();
  for (int i = 0; i < repeats; ++i) {
    stream.synchronize();
    comm::barrier(communicator, {"measuring the matmul peak"});
    const auto begin = std::chrono::steady_clock::now();
    multiply(stream, memory);
    stream.synchronize();
    const double seconds = std::chrono::duration<double>(std::chrono::steady_clock::now() - begin).count();
    if (i > 0 && seconds < best) best = seconds;
  }
  comm::reduce(communicator, std::span(&best, 1), comm::Reduction::max, {"matmul peak"});
  return best;
}

/// Of a matmul that takes a millisecond, or 8192^3; takes a fraction of a second.
template <class Comm, class Model>
MatmulPeak measure_matmul_peak(Comm& communicator, ShardedModule<Model>& module) {
  std::int64_t size = 512;
  double seconds = square_matmul_seconds(communicator, module, size);
  while (seconds < 1e-3 && size < 8192) seconds = square_matmul_seconds(communicator, module, size *= 2);
  const double rate = 2.0 * static_cast<double>(size * size * size) * communicator.size() / seconds;
  return {.flops_per_second = rate,
          .name = peak_name(dtype_of<typename ShardedModule<Model>::Compute>(), size, communicator.size(),
                            module.stream().threads(), rate)};
}

}  // namespace fsdp::report
