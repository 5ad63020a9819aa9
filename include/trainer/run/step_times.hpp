// SPDX-License-Identifier: Apache-2.0
/// @file
/// How long a run's steps take.
#pragma once

#include <cstdint>
#include <optional>
#include <span>

#include <tessera/comm/monitor.hpp>
#include <tessera/comm/ranks.hpp>
#include <tessera/trainer/data/source.hpp>
#include <tessera/trainer/data/windows.hpp>
#include <tessera/trainer/report/metrics.hpp>

namespace fsdp::train {

/// Returns the mean length of the documents in a source's training samples, each counted as often as it has tokens. Of
/// many samples it reads a few hundred.
template <data::Source Source>
double mean_document_length(const Source& source, data::Allocate allocate) {
  typename Source::Storage storage = source.storage(1, allocate);
  double squares = 0, tokens = 0;
  for (const std::int64_t sample : data::evenly_spread(0, source.training(), 256)) {
    squares += static_cast<double>(source.fill(storage, std::span(&sample, 1)).counts().squares);
    tokens += static_cast<double>(source.sequence_length());
  }
  return tokens > 0 ? squares / tokens : 0;
}

/// Returns the seconds that this rank has spent in a module's collectives so far, waiting for others or making them.
template <class Module>
double collective_seconds(Module& module) {
  double seconds = 0;
  for (auto* const axis : module.communicators()) {
    const comm::Totals& totals = axis->monitor().totals;
    seconds += totals.copy_seconds + totals.waiting_seconds;
  }
  return seconds;
}

/// Adds up a rank's steps after its first, which has more to do.
class StepMeter {
 public:
  /// Adds a step. All steps have the seconds of collectives, or none has.
  void add(const report::StepTimes& step);

  /// The mean of a step; nothing before the first that was added.
  std::optional<report::StepTimes> mean() const;

 private:
  report::StepTimes sum_;
  std::int64_t steps_ = 0;
};

/// Returns the rank that computes longest, if it takes over a quarter more than the median rank. Collective. `mean`:
/// this rank's; all ranks have one, or none has.
std::optional<report::Straggler> straggler(const comm::Ranks& ranks, const std::optional<report::StepTimes>& mean);

}  // namespace fsdp::train
