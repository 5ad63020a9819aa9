// SPDX-License-Identifier: Apache-2.0
/// @file
/// The sub-command plan on one compiled stack: what a training step would take on a cluster.
#pragma once

#include <string>

#include <tessera/fsdp/plan/estimate.hpp>
#include <tessera/trainer/run/commands.hpp>
#include <tessera/trainer/run/plan_options.hpp>

namespace fsdp::train {

/// Throws InputError for flags of `train` that say what a plan takes from the cluster, or ask for something else, and
/// for a trace that would replace a file that is read.
void check_plan_flags(const FlagSet& flags, const TrainOptions& options, const PlanOptions& plan);
/// Prints the estimate and, with --trace, writes the virtual step.
void print_estimate(const TrainOptions& options, const PlanOptions& plan, const plan::Estimate& estimate,
                    const plan::Request& request, const std::string& stack);

/// `tessera plan` on one stack: checks what a run on these ranks would check, and starts none. `options`: its ranks are
/// the cluster's. Returns the exit status.
template <class Model, class Optimizer>
int estimate_step(TrainOptions options, const PlanOptions& plan, const plan::Cluster& cluster, const FlagSet& flags,
                  const ShardingOf<Model>& asked, const TilingOf<Model>& tiling, const Optimizer& optimizer) {
  using Stack = typename Model::Stack;
  check_plan_flags(flags, options, plan);
  validate_constants(optimizer);
  require<InputError>(cluster.device == Stack::Device::name, "--cluster ", plan.cluster, " computes on ",
                      cluster.device, ", and this stack on ", Stack::Device::name,
                      cluster.device == "cuda" ? "; take --comm nccl" : "; take --comm threads or mpi",
                      ", or another cluster");
  options.dry_run = true;  // no data, and any number of ranks
  if (options.launch.threads == 0) options.launch.threads = cluster.threads;
  const int ranks = static_cast<int>(cluster.ranks);
  const auto [model, stored] = begun_model<Model>(options);
  require_samples(options, writes_text<Model>);
  require_stack_shards(options.sequence, Stack::Sequence::shards);
  validate(flags, options, ranks, sharding::facts_of(asked).pieces);
  const std::int64_t exchanges = options.sequence.ranks > 1 ? cluster.exchange_bytes : 0;
  const std::int64_t memory = cluster.memory - cluster.runtime_bytes - exchanges;  // for budgets that are `auto`
  const plan::Request request = plan_request(options, ranks, asked, optimizer);
  const ShardingOf<Model> sharding = settled_sharding(asked, tiling, model, request, optimizer, memory, !plan.json);
  const TilingOf<Model> cut = settled(tiling, model, sharding, request, optimizer, memory, !plan.json);
  const plan::Estimate estimate = plan::estimate(model, sharding, cut, request, cluster, optimizer);
  print_estimate(options, plan, estimate, request, Stack::name(sharding));
  return 0;
}

}  // namespace fsdp::train
