// SPDX-License-Identifier: Apache-2.0
/// @file
/// Windows as micro-batches, with the memory that the micro-batches refer to.
#pragma once

#include <cstdint>
#include <future>
#include <optional>
#include <vector>

#include <tessera/fsdp/nn/token_batch.hpp>

#include <support/stack_runner.hpp>

namespace fsdp::test {

/// Combines windows into one micro-batch and owns its memory.
class BatchMemory {
 public:
  BatchMemory();
  BatchMemory(const BatchMemory&) = delete;
  BatchMemory& operator=(const BatchMemory&) = delete;
  ~BatchMemory();

  TokenBatch add(const std::vector<Window>& windows);

 private:
  std::vector<std::vector<std::int64_t>> documents_;         // [batches]: cumulative lengths
  std::vector<std::vector<std::int32_t>> tokens_, targets_;  // moving a vector does not move its elements
};

/// A step's micro-batches, with their memory.
struct DrawnStep {
  DrawnStep();
  ~DrawnStep();
  /// Lets work that waits for the gate continue.
  void open_gate();

  std::int64_t step = 0;
  BatchMemory memory;
  std::vector<TokenBatch> micro_batches;
  double targets = 0;
  std::optional<std::promise<void>> gate;
};

}  // namespace fsdp::test
