// SPDX-License-Identifier: Apache-2.0
/// @file
/// `tessera plan` on one stack: its dry run on a cluster.
#pragma once

#include <string>
#include <utility>

#include <tessera/fsdp/core/policy_text.hpp>
#include <tessera/fsdp/plan/estimate.hpp>
#include <tessera/trainer/flags/optimizer_choice.hpp>
#include <tessera/trainer/flags/options.hpp>
#include <tessera/trainer/run/estimate.hpp>
#include <tessera/trainer/run/planned_step.hpp>

namespace fsdp::train {

/// `tessera plan` on one stack of a device without storage: checks what a run on these ranks would check, and starts
/// none. `options`: its ranks are the cluster's. `tells`: prints what it chooses where flags leave the choice to it.
template <class Model, class Optimizer>
EstimatedStep estimated_step(TrainOptions options, const plan::Cluster& cluster, const PlannedComm& comm,
                             const FlagSet& flags, const ShardingOf<Model>& asked, const TilingOf<Model>& tiling,
                             const Optimizer& optimizer, bool tells) {
  using Stack = typename Model::Stack;
  static_assert(Stack::Device::counts_only, "fsdp: a plan allocates nothing; take a stack over comm::Simulated");
  check_plan_flags(flags, options);
  validate_constants(optimizer);
  options.dry_run = true;  // no data, and any number of ranks
  if (options.launch.threads == 0) options.launch.threads = cluster.threads;
  const int ranks = static_cast<int>(cluster.ranks);
  std::string documents = counted_documents(options);
  const auto memory = [&] { return cluster.memory - cluster.runtime(options.sequence.ranks > 1); };
  auto [model, request, sharding, cut] = planned_step<Model>(options, flags, ranks, asked, tiling, optimizer, memory,
                                                             tells && tells_of_plans(), true, comm.scratch_bytes_for);
  request.document_length = static_cast<double>(options.document_length);
  plan::Estimate estimate = plan::estimate(model, sharding, cut, request, cluster, optimizer);
  return {.estimate = std::move(estimate),
          .request = request,
          .stack = message(policy_text(sharding), " / ", comm.name, " / ", policy_text<typename Stack::Precision>()),
          .documents = std::move(documents)};
}

}  // namespace fsdp::train
