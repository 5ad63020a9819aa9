// SPDX-License-Identifier: Apache-2.0
/// @file
/// The times that a plan expects of a run's steps (--cluster).
#pragma once

#include <optional>

#include <tessera/comm/agreement.hpp>
#include <tessera/comm/ranks.hpp>
#include <tessera/fsdp/core/error.hpp>
#include <tessera/fsdp/core/function_ref.hpp>
#include <tessera/fsdp/plan/cluster.hpp>
#include <tessera/fsdp/plan/estimate.hpp>
#include <tessera/fsdp/verification/verification.hpp>
#include <tessera/trainer/flags/cluster_file.hpp>
#include <tessera/trainer/flags/options.hpp>
#include <tessera/trainer/report/metrics.hpp>

namespace fsdp::train {

/// Returns the times of a step that a plan expects on --cluster; nothing without --cluster, and on ranks other than 0.
/// Collective. `document_length` returns Request::document_length, on rank 0. Throws InputError on all ranks for an
/// invalid cluster, or one that computes on another device.
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
    if (ranks.rank() != 0) return std::optional<report::StepTimes>();  // only rank 0 reports it
    request.document_length = document_length();
    const plan::Estimate step = plan::estimate(model, sharding, tiling, request, cluster, optimizer, WatchedSteps());
    return std::optional(report::StepTimes{.all = step.seconds, .collectives = step.exposed_collectives});
  });
}

}  // namespace fsdp::train
