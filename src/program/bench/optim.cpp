// SPDX-License-Identifier: Apache-2.0
/// @file
/// AdamW over one long tensor: 30 bytes per parameter with a bf16 model weight, 28 without.

#include <tessera/comm/launch/cores.hpp>
#include <tessera/fsdp/device/cpu.hpp>

#include "alone.hpp"
#include "floors.hpp"
#include "lines.hpp"
#include "rounds.hpp"

namespace fsdp::bench {
namespace {

using device::Cpu;
using device::MemoryKind;

/// Main weights, two moments, a gradient and model weights.
class Optimizer {
 public:
  Optimizer(std::int64_t parameters, bool rounds, int threads)
      : size_{parameters},
        arena_(ledger_, 0),
        stream_(arena_, threads),
        main_(ledger_, MemoryKind::weights, 4 * parameters),
        first_(ledger_, MemoryKind::optimizer, 4 * parameters),
        second_(ledger_, MemoryKind::optimizer, 4 * parameters),
        gradient_(ledger_, MemoryKind::gradients, 4 * parameters),
        model_(ledger_, MemoryKind::weights, rounds ? 2 * parameters : 0) {
    fill_uniform(floats(main_), 0.02f);
    fill_uniform(floats(gradient_), 1e-3f);
  }

  void step() {
    Tensor<bf16> model;
    if (model_.bytes() > 0) model = {reinterpret_cast<bf16*>(model_.data()), {size_}};
    const device::StepDecision step{.taken = 1, .lr = 1e-4};
    device::enqueue(stream_, device::AdamWStep<bf16>{.rules = {.weight_decay = 0.1f},
                                                     .step = {&step, {1}},
                                                     .main = floats(main_),
                                                     .first_moment = floats(first_),
                                                     .second_moment = floats(second_),
                                                     .gradient = floats(gradient_),
                                                     .model = model});
  }
  /// Bytes held; the triad's arrays have the same size.
  std::int64_t bytes() const { return ledger_.bytes(); }

 private:
  Tensor<float> floats(const CpuBlock& block) const { return {reinterpret_cast<float*>(block.data()), {size_}}; }

  std::int64_t size_;
  device::Ledger ledger_;
  Cpu::Arena arena_;
  Cpu::Stream stream_;
  CpuBlock main_, first_, second_, gradient_, model_;
};

Line measure(const BenchOptions& options, cli::PrecisionChoice precision, int threads) {
  const bool rounds_weights = precision == cli::PrecisionChoice::bf16;
  Optimizer optimizer(options.parameters, rounds_weights, threads);
  Triad triad(optimizer.bytes(), threads);
  Rounds rounds;
  const std::size_t step_case = rounds.add([&] { optimizer.step(); });
  const std::size_t triad_case = rounds.add([&] { triad.run(); });
  rounds.run(options.repeats);

  const std::int64_t bytes_per_parameter = rounds_weights ? 30 : 28;
  const auto bytes = static_cast<double>(bytes_per_parameter * options.parameters);
  const auto triad_bytes = static_cast<double>(triad.bytes());
  return Line("optim")
      .add("precision", cli::to_text(precision))
      .add("threads", threads)
      .add("parameters", options.parameters)
      .add("bytes_per_parameter", bytes_per_parameter)
      .add("ms", rounds.median_seconds(step_case) * 1e3)
      .add("gb_per_second", bytes / rounds.median_seconds(step_case) * 1e-9)
      .add("triad_gb_per_second", triad_bytes / rounds.median_seconds(triad_case) * 1e-9)
      .add("ratio", rounds.median_of([&](std::size_t round) {
        return bytes / triad_bytes * rounds.seconds(triad_case, round) / rounds.seconds(step_case, round);
      }));
}

}  // namespace

int measure_optim(const BenchOptions& options, const train::FlagSet& flags) {
  const int threads = comm::rank_threads(options.launch.threads, 1);
  const bool asked = flags.is_given("precision");
  for (const cli::PrecisionChoice precision : {cli::PrecisionChoice::bf16, cli::PrecisionChoice::fp32})
    if (!asked || precision == options.stack.precision) {
      measure(options, precision, threads).print();
      measure_muon(options, precision, threads);
    }
  return 0;
}

}  // namespace fsdp::bench
