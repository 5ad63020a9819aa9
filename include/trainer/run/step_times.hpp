// SPDX-License-Identifier: Apache-2.0
/// @file
/// How long a run's steps take, beside what a plan expects of them (--cluster).
#pragma once

#include <cstdint>
#include <optional>
#include <string>

#include <tessera/comm/ranks.hpp>
#include <tessera/comm/together.hpp>
#include <tessera/fsdp/core/error.hpp>
#include <tessera/fsdp/plan/estimate.hpp>
#include <tessera/trainer/flags/cluster_file.hpp>
#include <tessera/trainer/flags/options.hpp>
#include <tessera/trainer/report/metrics.hpp>

namespace fsdp::train {

/// Returns what a plan expects of a step on --cluster; nothing without it. Collective. Throws InputError on all ranks
/// for a cluster that cannot be, or that computes on another device.
template <class Model, class Optimizer>
std::optional<report::StepTimes> expected_step(const comm::Ranks& ranks, const TrainOptions& options,
                                               const Model& model, const typename Model::Stack::Sharding& sharding,
                                               const typename Model::Stack::Tiling& tiling,
                                               const plan::Request& request, const Optimizer& optimizer) {
  if (!options.cluster) return std::nullopt;
  return comm::together(ranks, "cluster", [&] {
    const plan::Cluster cluster = read_cluster(*options.cluster, ranks.size());
    constexpr auto device = Model::Stack::Device::name;
    require<InputError>(cluster.device == device, "--cluster ", *options.cluster, " computes on ", cluster.device,
                        ", and this run on ", device, "; leave it out, or give one that is of these machines");
    const plan::Estimate step = plan::estimate(model, sharding, tiling, request, cluster, optimizer);
    return report::StepTimes{.all = step.seconds, .collectives = step.exposed_collectives};
  });
}

/// Adds up a rank's steps after its first, which has more to do.
class StepMeter {
 public:
  /// Adds a step.
  void add(double seconds) {
    all_ += seconds;
    ++steps_;
  }
  /// Adds the seconds of a step in which this rank waited for collectives or made them. Not called for a device that
  /// has queues for them, where the host does not see it.
  void add_collectives(double seconds) { collectives_ = collectives_.value_or(0) + seconds; }

  /// The mean of a step; nothing before the second one.
  std::optional<report::StepTimes> mean() const;

 private:
  double all_ = 0;
  std::optional<double> collectives_;
  std::int64_t steps_ = 0;
};

/// Returns the rank that computes longest, if it takes over a quarter more than the median rank. Collective. `mean`:
/// this rank's; all ranks have one, or none has.
std::optional<report::Straggler> straggler(const comm::Ranks& ranks, const std::optional<report::StepTimes>& mean);

}  // namespace fsdp::train
