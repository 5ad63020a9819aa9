// SPDX-License-Identifier: Apache-2.0
/// @file
/// A lower bound on the time of a training step, measured on the same machine.
#pragma once

#include <cstddef>
#include <cstdint>
#include <vector>

#include <tessera/fsdp/core/dtype.hpp>
#include <tessera/fsdp/device/operations.hpp>
#include <tessera/fsdp/execution/executor.hpp>
#include <tessera/fsdp/models/llama_config.hpp>

#include "../src/program/calibrate/computations.hpp"
#include "bounds.hpp"
#include "lines.hpp"
#include "options.hpp"

namespace fsdp::bench {

/// The work of a step on one rank, as the dry run reports it.
struct StepWork {
  std::vector<device::MatmulRecord> matmuls;
  std::int64_t attention_flops = 0;
  std::int64_t elementwise_bytes = 0;
  std::int64_t optimizer_bytes = 0;   ///< 30 per parameter in bf16, 28 in fp32
  std::int64_t activation_bytes = 0;  ///< size of the ring buffers of matmul operands
  DType compute = DType::f32;
  int threads = 1;
};

/// Time of the timed steps by phase, from the events of their schedules.
struct StepPhases {
  double forward_ms = 0, loss_ms = 0, backward_ms = 0;
  double exchange_ms = 0;   ///< starting collectives; waiting for one counts in the phase that needs its result
  double optimizer_ms = 0;  ///< gradient norm and optimizer update
};

/// The bound is the sum of: matmuls at their exact shapes, attention at the rate of a square matmul, element-wise bytes
/// at the rate of a copy, the optimizer's bytes at the rate of a triad.
class StepBound {
 public:
  explicit StepBound(const StepWork& work);

  void add_to(Rounds& rounds);
  double seconds(const Rounds& rounds, std::size_t round) const;
  /// Adds the parts of the bound to the line, and the rates from which they were computed.
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

/// Sums the executor's time by phase. The object must not move while it observes.
class PhaseClock {
 public:
  Observer observer();
  void add_optimizer(double seconds) { phases_.optimizer_ms += seconds * 1e3; }
  void reset() { phases_ = {}; }
  const StepPhases& sums() const { return phases_; }

 private:
  StepPhases phases_;
  std::int64_t begin_ = 0;  ///< start of the current phase, in nanoseconds
};

/// Returns the config of the model that `step` trains and `generate` uses.
LlamaConfig step_model(const BenchOptions& options, bool adapters = false);

/// Returns the tokens of one sequence, different on every rank.
std::vector<std::int32_t> random_tokens(std::int64_t count, std::int64_t vocabulary, int rank);

}  // namespace fsdp::bench
