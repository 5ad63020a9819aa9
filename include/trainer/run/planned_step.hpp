// SPDX-License-Identifier: Apache-2.0
/// @file
/// Determines the step that a run's flags describe, before any of its memory is allocated: its size, its model,
/// budgets that are `auto`, its memory with other flags, and its times on a cluster (--cluster, `tessera plan`). Runs,
/// dry runs and plans call, in this order: checked_size, initial_model, resolve_budgets.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <type_traits>
#include <utility>

#include <tessera/comm/ranks.hpp>
#include <tessera/fsdp/core/error.hpp>
#include <tessera/fsdp/core/function_ref.hpp>
#include <tessera/fsdp/core/policy_text.hpp>
#include <tessera/fsdp/optim/optimizer.hpp>
#include <tessera/fsdp/plan/cluster.hpp>
#include <tessera/fsdp/plan/dry_run.hpp>
#include <tessera/fsdp/plan/estimate.hpp>
#include <tessera/fsdp/plan/plan.hpp>
#include <tessera/fsdp/sharding/strategy.hpp>
#include <tessera/fsdp/training/step_size.hpp>
#include <tessera/fsdp/verification/verification.hpp>
#include <tessera/tiling/policies.hpp>
#include <tessera/trainer/flags/flag_set.hpp>
#include <tessera/trainer/flags/flag_values.hpp>
#include <tessera/trainer/flags/optimizer_choice.hpp>
#include <tessera/trainer/flags/options.hpp>
#include <tessera/trainer/generate/samples.hpp>
#include <tessera/trainer/report/metrics.hpp>
#include <tessera/trainer/run/arguments.hpp>
#include <tessera/trainer/run/estimate.hpp>
#include <tessera/trainer/run/first_weights.hpp>
#include <tessera/trainer/run/step_memory.hpp>

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

/// Returns the size of a rank's step on `ranks` ranks. `flags`: the flags that are bound to the options. Throws
/// InputError with one sentence about the first flag that this stack does not support.
template <class Model>
StepSize checked_size(const TrainOptions& options, const FlagSet& flags, int ranks, const ShardingOf<Model>& sharding,
                      const TilingOf<Model>& tiling) {
  require_samples(options, writes_text<Model>);
  require_stack_shards(options.sequence, Model::Stack::Sequence::shards);
  const StepSize size = validate(flags, options, ranks, sharding::facts_of(sharding).pieces);
  check_memory(options, asks_for_memory(tiling) || weights_ask_for_memory(sharding), policy_text(tiling));
  return size;
}

/// A planned step.
template <class Model>
struct PlannedStep {
  plan::Request request;
  Model model;
  ShardingOf<Model> sharding;
  TilingOf<Model> tiling;

  /// Whether a budget is `auto`.
  bool asks_for_memory() const { return train::asks_for_memory(tiling) || weights_ask_for_memory(sharding); }
};

/// Replaces budgets that are `auto`: a strategy's by the bytes that the rest of the step leaves, a tiling's by the
/// largest that fits, unless `cuts` is false. `memory(used)` returns the bytes of a rank with the step's communicators;
/// it is called only if a budget is `auto`. Prints the budgets if `speaks`. Throws InputError if both are `auto`.
template <class Model, class Optimizer, class Memory>
void resolve_budgets(PlannedStep<Model>& step, const Optimizer& optimizer, Memory memory, bool speaks,
                     bool cuts = true) {
  if (!step.asks_for_memory()) return;
  auto& [request, model, sharding, tiling] = step;
  constexpr StackMemory stack = stack_memory<typename Model::Stack>;
  if (weights_ask_for_memory(sharding)) {
    require<InputError>(!asks_for_memory(tiling),
                        "--tiling budget:auto and budget=auto behind --sharding each take what the other leaves of a "
                        "rank's memory; give one of them in bytes");
    PolicyParts parts;
    parts.part(sharding);
    parts.set("budget", 0);
    const plan::Plan planned = plan::dry_run(model, sharding, tiling, request, optimizer, WatchedSteps());
    const std::int64_t bytes = memory(planned.communicators);
    parts.set("budget", memory_left_for_weights(bytes, planned, model.units(), stack));
    if (speaks) print_budget("--sharding budget=auto", policy_text(sharding), bytes);
  }
  if constexpr (std::is_same_v<TilingOf<Model>, tiling::RunTimeTiling>)
    if (cuts && tiling.asks_for_memory()) {
      const plan::Plan whole = plan::dry_run(model, sharding, tiling::Untiled{}, request, optimizer, WatchedSteps());
      const std::int64_t bytes = memory(whole.communicators);
      // clang's lambdas cannot capture structured bindings.
      const auto taken = [&](const tiling::RunTimeTiling& tried, const UnitOptions& units) {
        return taken_by(plan::dry_run(Model(step.model.config(), units), step.sharding, tried, step.request, optimizer,
                                      WatchedSteps()),
                        stack.one);
      };
      tiling = tiling::RunTimeTiling::budget(largest_budget(bytes, model.units(), stack, taken));
      if (speaks) print_budget("--tiling budget:auto", tiling.text(), bytes);
    }
}

/// Returns the advice from dry runs. `memory` returns the bytes of a device whose memory is separate from the host's,
/// for a step with these communicators.
template <class Model, class Optimizer>
std::string memory_advice(const TrainOptions& options, const PlannedStep<Model>& step, const Optimizer& optimizer,
                          FunctionRef<std::int64_t(const plan::UsedCommunicators& used)> memory) {
  constexpr bool one = Model::Stack::Device::host_memory;
  constexpr bool chosen = std::is_same_v<TilingOf<Model>, tiling::RunTimeTiling>;
  const auto bytes = [&](const TrainOptions& other, const tiling::RunTimeTiling* other_tiling, int other_ranks) {
    TilingOf<Model> cut = step.tiling;
    if constexpr (chosen)
      if (other_tiling != nullptr) cut = *other_tiling;
    return taken_by(
        plan::dry_run(Model(step.model.config(), other.units), step.sharding, cut,
                      plan_request(other, other_ranks, step.sharding, optimizer), optimizer, WatchedSteps()),
        one);
  };
  const tiling::RunTimeTiling* own = nullptr;
  if constexpr (chosen) own = &step.tiling;
  std::optional<std::int64_t> available;
  if (!one)
    available = memory(
        plan::dry_run(step.model, step.sharding, step.tiling, step.request, optimizer, WatchedSteps()).communicators);
  return memory_advice(options, own, step.request.ranks, sharding::facts_of(step.sharding).pieces, available,
                       offloads_optimizer_of<ShardingOf<Model>>, bytes);
}

/// Throws the same InputError on all ranks if some rank's machine has too little memory for inputs in host memory; the
/// error reports the share that would fit. If device and host share one memory (Device::host_memory), inputs need the
/// same bytes in either place, and nothing is refused.
template <class Model, class Optimizer>
void require_host_memory(const comm::Ranks& ranks, const PlannedStep<Model>& step, const Optimizer& optimizer) {
  const UnitOptions& units = step.model.units();
  if (Model::Stack::Device::host_memory || units.offload_inputs == 0) return;
  const std::int64_t memory = least_memory(ranks, host_memory_of_rank(ranks.size()), "host memory");
  require_host_memory(units.offload_inputs, memory, [&](double share) {
    UnitOptions other = units;
    other.offload_inputs = share;
    return plan::dry_run(Model(step.model.config(), other), step.sharding, step.tiling, step.request, optimizer,
                         WatchedSteps())
        .offloaded_bytes;
  });
}

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
  const auto memory = [&](const plan::UsedCommunicators& used) { return cluster.memory - cluster.runtime(used); };
  PlannedStep<Model> step{
      .request = most_loaded_request(checked_size<Model>(options, flags, ranks, asked, tiling), ranks, optimizer),
      .model = initial_model<Model>(options, true),
      .sharding = asked,
      .tiling = tiling};
  step.request.scratch_bytes_for = comm.scratch_bytes_for;
  resolve_budgets(step, optimizer, memory, tells && prints_plans());
  step.request.document_length = static_cast<double>(options.document_length);
  return {
      .estimate =
          plan::estimate(step.model, step.sharding, step.tiling, step.request, cluster, optimizer, WatchedSteps()),
      .request = step.request,
      .stack = message(policy_text(step.sharding), " / ", comm.name, " / ", policy_text<typename Stack::Precision>()),
      .documents = std::move(documents)};
}

}  // namespace fsdp::train
