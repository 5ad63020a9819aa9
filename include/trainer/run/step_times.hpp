// SPDX-License-Identifier: Apache-2.0
/// @file
/// How long a run's steps take, beside what a plan expects of them (--cluster).
#pragma once

#include <cstdint>
#include <optional>
#include <span>
#include <string>

#include <tessera/comm/ranks.hpp>
#include <tessera/comm/together.hpp>
#include <tessera/fsdp/core/error.hpp>
#include <tessera/fsdp/core/function_ref.hpp>
#include <tessera/fsdp/plan/estimate.hpp>
#include <tessera/trainer/data/source.hpp>
#include <tessera/trainer/data/windows.hpp>
#include <tessera/trainer/flags/cluster_file.hpp>
#include <tessera/trainer/flags/options.hpp>
#include <tessera/trainer/report/metrics.hpp>

namespace fsdp::train {

/// Returns what a plan expects of a step on --cluster; nothing without it, and on other ranks than 0. Collective.
/// `document_length` returns Request::document_length, on rank 0. Throws InputError on all ranks for a cluster that
/// cannot be, or that computes on another device.
template <class Model, class Optimizer>
std::optional<report::StepTimes> expected_step(const comm::Ranks& ranks, const TrainOptions& options,
                                               const Model& model, const typename Model::Stack::Sharding& sharding,
                                               const typename Model::Stack::Tiling& tiling, plan::Request request,
                                               const Optimizer& optimizer, FunctionRef<double()> document_length) {
  if (!options.cluster) return std::nullopt;
  return comm::together(ranks, "cluster", [&] {
    const plan::Cluster cluster = read_cluster(*options.cluster, ranks.size());
    constexpr auto device = Model::Stack::Device::name;
    require<InputError>(cluster.device == device, "--cluster ", *options.cluster, " computes on ", cluster.device,
                        ", and this run on ", device, "; leave it out, or give one that is of these machines");
    if (ranks.rank() != 0) return std::optional<report::StepTimes>();  // one says it
    request.document_length = document_length();
    const plan::Estimate step = plan::estimate(model, sharding, tiling, request, cluster, optimizer);
    return std::optional(report::StepTimes{.all = step.seconds, .collectives = step.exposed_collectives});
  });
}

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
