// SPDX-License-Identifier: Apache-2.0
/// @file
/// `tessera plan` on one stack: its dry run on a cluster.
#pragma once

#include <string>
#include <utility>

#include <tessera/fsdp/core/policy_text.hpp>
#include <tessera/fsdp/plan/estimate.hpp>
#include <tessera/fsdp/verification/verification.hpp>
#include <tessera/trainer/flags/optimizer_choice.hpp>
#include <tessera/trainer/flags/options.hpp>
#include <tessera/trainer/run/estimate.hpp>
#include <tessera/trainer/run/first_weights.hpp>
#include <tessera/trainer/run/planned_step.hpp>

namespace fsdp::train {

/// Plans a step on one stack of a device without storage: makes the checks of a run on these ranks, and starts no
/// ranks. `options`: with the cluster's number of ranks. `tells`: whether to print the choices that flags leave open.
template <class Model, class Optimizer>
EstimatedStep estimated_step(TrainOptions options, const plan::Cluster& cluster, const PlannedComm& comm,
                             const FlagSet& flags, const ShardingOf<Model>& asked, const TilingOf<Model>& tiling,
                             const Optimizer& optimizer, bool tells) {
  using Stack = typename Model::Stack;
  static_assert(Stack::Device::counts_only, "fsdp: a plan allocates nothing; take a stack over comm::Simulated");
  check_plan_flags(flags, options);
  validate_constants(optimizer);
  options.dry_run = true;  // needs no data, and accepts any number of ranks
  if (options.launch.threads == 0) options.launch.threads = cluster.threads;
  const int ranks = static_cast<int>(cluster.ranks);
  std::string documents = counted_documents(options);
  const auto memory = [&] { return cluster.memory - cluster.runtime(options.sequence.ranks > 1); };
  PlannedStep<Model> step{
      .request = most_loaded_request(checked_size<Model>(options, flags, ranks, asked, tiling), ranks, optimizer),
      .model = begun_model<Model>(options, true),
      .sharding = asked,
      .tiling = tiling};
  step.request.scratch_bytes_for = comm.scratch_bytes_for;
  settle_budgets(step, optimizer, memory, tells && tells_of_plans());
  step.request.document_length = static_cast<double>(options.document_length);
  return {
      .estimate =
          plan::estimate(step.model, step.sharding, step.tiling, step.request, cluster, optimizer, WatchedSteps()),
      .request = step.request,
      .stack = message(policy_text(step.sharding), " / ", comm.name, " / ", policy_text<typename Stack::Precision>()),
      .documents = std::move(documents)};
}

}  // namespace fsdp::train
