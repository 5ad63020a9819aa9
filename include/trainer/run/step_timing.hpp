// SPDX-License-Identifier: Apache-2.0
/// @file
/// What the timing of a step takes that knows no stack: random tokens, the clock, and what a rank's lack of memory
/// means for all.
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <span>
#include <string>
#include <vector>

#include <tessera/comm/ranks.hpp>
#include <tessera/fsdp/core/function_ref.hpp>
#include <tessera/fsdp/nn/token_batch.hpp>
#include <tessera/trainer/data/source.hpp>

namespace fsdp::train {

/// What timing a step came to.
struct TimedStep {
  double seconds = 0;       ///< the median of the measured steps, each as long as on the rank that took longest
  std::string failed = {};  ///< what a rank had no memory for; empty: the step was timed

  friend bool operator==(const TimedStep&, const TimedStep&) = default;
};

/// Micro-batches of random tokens; every sequence is one document, and every token has a target.
class RandomBatches {
 public:
  /// `key`: equal ones give equal tokens.
  RandomBatches(std::int64_t sequences, std::int64_t sequence_length, std::int64_t vocabulary, int micro_batches,
                std::uint64_t key, data::Allocate allocate);

  /// Valid as long as this object.
  std::span<const TokenBatch> micro_batches() const { return batches_; }
  /// Returns the counts of one of `parts` ranks that share the sequences.
  BatchCounts counts(int part, int parts) const;

 private:
  std::vector<std::shared_ptr<std::byte>> memory_;  // [micro_batches]
  std::vector<TokenBatch> batches_;                 // [micro_batches]
};

/// How often a step is timed.
struct Timing {
  int warm_ups = 1;
  int steps = 3;             ///< that are timed after those
  double most_seconds = 60;  ///< once timed steps took as long, no more are
};

/// Calls `step` as often, and returns the median of the timed ones: of each the seconds of the rank that took longest,
/// so that all ranks have the same result. Collective.
double median_seconds(const comm::Ranks& ranks, const Timing& timing, FunctionRef<void()> step);

/// Calls f, which throws MemoryError where a rank has too little memory. Returns what the first such rank said, on all
/// ranks; empty if none did. Collective.
std::string memory_that_lacks(const comm::Ranks& ranks, FunctionRef<void()> f);

}  // namespace fsdp::train
