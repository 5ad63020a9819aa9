// SPDX-License-Identifier: Apache-2.0
/// @file
/// A lower bound of a training step's time, measured on the same machine.
#pragma once

#include <cstddef>
#include <cstdint>
#include <vector>

#include <tessera/fsdp/core/dtype.hpp>
#include <tessera/fsdp/device/operations.hpp>
#include <tessera/fsdp/execution/executor.hpp>
#include <tessera/fsdp/models/llama_config.hpp>

#include "../src/program/calibrate/matmul_replay.hpp"
#include "bounds.hpp"
#include "lines.hpp"
#include "options.hpp"

namespace fsdp::bench {

/// The work of a step on one rank, as listed by the dry run.
struct StepWork {
  std::vector<device::MatmulRecord> matmuls;
  std::int64_t attention_flops = 0;
  std::int64_t elementwise_bytes = 0;
  std::int64_t optimizer_bytes = 0;   ///< 30 per parameter in bf16, 28 in fp32
  std::int64_t activation_bytes = 0;  ///< size of the matmuls' rings
  DType compute = DType::f32;
  int threads = 1;
};

/// The time of the timed steps by phase, summed over their schedules' events.
struct StepPhases {
  double forward_ms = 0, loss_ms = 0, backward_ms = 0;
  double exchange_ms = 0;   ///< starting gathers and reductions; waiting for them is in the phase that needs them
  double optimizer_ms = 0;  ///< gradient norm and the optimizer
};

/// The bound is the sum of: matmuls at their exact shapes, attention at the rate of a square matmul, element-wise bytes
/// at the rate of a copy, the optimizer's bytes at the rate of a triad.
class StepBound {
 public:
  explicit StepBound(const StepWork& work);

  void add_to(Rounds& rounds);
  double seconds(const Rounds& rounds, std::size_t round) const;
  /// Adds its parts, and the rates that were used for them.
  void add_parts(Line& line, const Rounds& rounds) const;

 private:
  double attention_seconds(const Rounds& rounds, std::size_t round) const;
  double elementwise_seconds(const Rounds& rounds, std::size_t round) const;
  double optimizer_seconds(const Rounds& rounds, std::size_t round) const;

  double attention_flops_, elementwise_bytes_, optimizer_bytes_;
  calibrate::MatmulReplay<device::Cpu> matmuls_, square_;
  Copies copies_;
  Triad triad_;
  std::size_t matmuls_case_ = 0, square_case_ = 0, copies_case_ = 0, triad_case_ = 0;
};

/// Sums the executor's time by phase. Its address must not change while it observes.
class PhaseClock {
 public:
  Observer observer();
  void add_optimizer(double seconds) { phases_.optimizer_ms += seconds * 1e3; }
  void reset() { phases_ = {}; }
  const StepPhases& sums() const { return phases_; }

 private:
  StepPhases phases_;
  std::int64_t begin_ = 0;  ///< nanoseconds
};

/// Returns the config of the model that `step` trains and `generate` runs.
LlamaConfig step_model(const BenchOptions& options, bool adapters = false);

/// Returns the tokens of one sequence, different on every rank.
std::vector<std::int32_t> random_tokens(std::int64_t count, std::int64_t vocabulary, int rank);

}  // namespace fsdp::bench
