// SPDX-License-Identifier: Apache-2.0
/// @file
/// The estimate of a model's training step on a cluster, by a dry run.
#pragma once

#include <cmath>
#include <cstdint>

#include <tessera/fsdp/core/checked.hpp>
#include <tessera/fsdp/plan/cluster.hpp>
#include <tessera/fsdp/plan/dry_run.hpp>
#include <tessera/fsdp/plan/step_estimate.hpp>
#include <tessera/fsdp/plan/step_record.hpp>

namespace fsdp::plan {

/// Dry-runs a training step on the cluster's ranks and returns the estimate. The arguments are those of dry_run; the
/// number of ranks is the cluster's. Throws InputError for an invalid cluster, and as dry_run does.
template <class Model, class Optimizer = optim::RunTimeOptimizer, class Watch = UnwatchedSteps>
Estimate estimate(const Model& model, typename Model::Stack::Sharding sharding, typename Model::Stack::Tiling tiling,
                  Request request, const Cluster& cluster, const Optimizer& with = {}, const Watch& watch = {}) {
  cluster.validate();
  request.ranks = static_cast<int>(cluster.ranks);
  request.purpose = Purpose::train;
  StepRecord record;
  request.record = &record;
  const Plan plan = dry_run(model, sharding, tiling, request, with, watch);
  const StepSize& size = request.size();
  const int pieces = sharding::facts_of(sharding).pieces;
  const std::int64_t batches = pieces > 0 ? pieces : request.ranks / size.ranks_per_sequence * size.micro_batches;
  const std::int64_t length = size.sequence_length;
  const double sequences = static_cast<double>(batches) * static_cast<double>(size.sequences);
  const std::int64_t whole = checked_multiply(length, length);
  const std::int64_t squares =
      request.document_length > 0 ? std::llround(request.document_length * static_cast<double>(length)) : whole;
  const auto attention = [&](std::int64_t of) { return model.flops(length, of) - model.flops(length, 0); };
  if (squares != whole && attention(whole) > 0) record.scale_attention(attention(squares) / attention(whole));
  return estimate_of(
      plan, record,
      {.tokens = sequences * static_cast<double>(length), .flops = sequences * model.flops(length, squares)}, cluster);
}

}  // namespace fsdp::plan
