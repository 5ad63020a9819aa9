// SPDX-License-Identifier: Apache-2.0
/// @file
/// Words and tables that the program prints, and the peak that MFU divides by.
#pragma once

#include <chrono>
#include <cstdint>
#include <limits>
#include <string>
#include <vector>

#include <comm/collectives.hpp>
#include <fsdp/device/memory.hpp>
#include <fsdp/device/operations.hpp>
#include <fsdp/sharded_module.hpp>
#include <fsdp/sharding/schedule.hpp>
#include <fsdp/train/metrics.hpp>
#include <fsdp/train/trace.hpp>

namespace fsdp::train {

/// What is about to be trained, in a few lines.
std::string start_text(const StartRecord& record, std::int64_t corpus_bytes, std::int64_t files,
                       std::int64_t training_windows, std::int64_t held_out_windows, std::int64_t peak_bytes);

/// What was trained, and where it is.
std::string summary_text(const SummaryRecord& record);

/// "1.50 GiB", "12.0 MiB", "640 B".
std::string bytes_text(std::int64_t bytes);

/// The dry run's table: bytes by kind, and their sum.
std::string memory_table(const device::BytesByKind& bytes, const std::string& title);

/// A schedule, one event a line: "gather group 2 (model.layers.1.), micro-batch 0".
std::string schedule_text(const sharding::Schedule& schedule, const std::vector<std::string>& units,
                          const std::vector<std::string>& groups);

/// {"loss": ..., "tokens": ...}
std::string mean_loss_json(double loss, std::int64_t tokens);

TraceEvent trace_event(const sharding::Event& event, int rank, double begin_seconds, double seconds);

/// A measured matmul rate of all ranks together.
struct MatmulPeak {
  double flops_per_second = 1;
  std::string name;
};

/// Name of a measured peak, such as "matmul bf16 1024^3, 2 x 1 threads, measured 0.40 TFLOP/s".
std::string peak_name(DType dtype, std::int64_t size, int ranks, int threads, double flops_per_second);

/// Times one square matmul in the compute type on every rank at once; takes a fraction of a second.
template <class Comm, class Model>
MatmulPeak measure_matmul_peak(Comm& communicator, ShardedModule<Model>& module) {
  using Module = ShardedModule<Model>;
  using Compute = typename Module::Compute;
  using Device = typename Module::Device;
  constexpr std::int64_t size = 512;
  constexpr int repeats = 8;
  std::vector<Compute> memory(3 * size * size, Compute(0.5f));
  const Tensor<const Compute> a(memory.data(), {size, size}), b(memory.data() + size * size, {size, size});
  const Tensor<Compute> c(memory.data() + 2 * size * size, {size, size});
  device::Ledger ledger;
  const device::MatmulRecord problem{
      .m = size, .n = size, .k = size, .operands = dtype_of<Compute>(), .result = dtype_of<Compute>()};
  typename Device::Arena arena(ledger,
                               Device::matmul_scratch(module.stream(), problem, size, size, size) + device::alignment);
  typename Device::Stream stream(arena, module.stream().threads());
  double best = std::numeric_limits<double>::max();
  for (int i = 0; i < repeats; ++i) {
    comm::barrier(communicator, {"measuring the matmul peak"});
    const auto begin = std::chrono::steady_clock::now();
    Device::template matmul<Compute, Compute>(stream, a, b, c);
    const double seconds = std::chrono::duration<double>(std::chrono::steady_clock::now() - begin).count();
    if (i > 0 && seconds < best) best = seconds;
  }
  const double rate = comm::sum_over_ranks(communicator, 2.0 * size * size * size / best, {"matmul peak"});
  return {.flops_per_second = rate,
          .name = peak_name(dtype_of<Compute>(), size, communicator.size(), stream.threads(), rate)};
}

}  // namespace fsdp::train
