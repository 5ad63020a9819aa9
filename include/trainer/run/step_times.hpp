// SPDX-License-Identifier: Apache-2.0
/// @file
/// The durations of a run's steps.
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

/// Returns the mean length of documents in training samples, weighted by tokens; reads a few hundred samples at most.
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

/// Returns the seconds that this rank has spent so far in a module's collectives, waiting or executing them.
template <class Module>
double collective_seconds(Module& module) {
  double seconds = 0;
  for (auto* const axis : module.communicators()) {
    const comm::Totals& totals = axis->monitor().totals;
    seconds += totals.copy_seconds + totals.waiting_seconds;
  }
  return seconds;
}

/// Adds up the times of a rank's steps after the first, which has more to do.
class StepMeter {
 public:
  /// Adds a step. Either all steps have the seconds of collectives, or none does.
  void add(const report::StepTimes& step);

  std::optional<report::StepTimes> mean() const;  ///< mean times of a step; empty before the first step is added

 private:
  report::StepTimes sum_;
  std::int64_t steps_ = 0;
};

/// Returns the rank that computes longest, if it needs over a quarter more time than the median rank. Collective.
/// `mean`: this rank's; either all ranks have one, or none does.
std::optional<report::Straggler> straggler(const comm::Ranks& ranks, const std::optional<report::StepTimes>& mean);

}  // namespace fsdp::train
