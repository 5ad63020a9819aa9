// SPDX-License-Identifier: Apache-2.0
/// @file
/// The dry runs of a stack that settle its budgets (`budget:auto`, `budget=auto`) and advise on its memory.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <type_traits>

#include <tessera/fsdp/core/error.hpp>
#include <tessera/fsdp/core/policy_parts.hpp>
#include <tessera/fsdp/core/policy_text.hpp>
#include <tessera/fsdp/module/units.hpp>
#include <tessera/fsdp/plan/dry_run.hpp>
#include <tessera/fsdp/sharding/schedule_of.hpp>
#include <tessera/fsdp/sharding/strategies.hpp>
#include <tessera/fsdp/training/run_time_optimizer.hpp>
#include <tessera/tiling/policies.hpp>
#include <tessera/trainer/flags/model_choice.hpp>
#include <tessera/trainer/flags/options.hpp>
#include <tessera/trainer/run/arguments.hpp>
#include <tessera/trainer/run/auto_budget.hpp>
#include <tessera/trainer/run/auto_residency.hpp>
#include <tessera/trainer/run/memory_advice.hpp>
#include <tessera/trainer/run/offload_advice.hpp>
#include <tessera/trainer/run/rank_memory.hpp>
#include <tessera/trainer/run/step_plan.hpp>

namespace fsdp::train {

/// The largest tiling budget with which a model's step fits into `memory`, by its dry runs.
template <class Model, class Optimizer = optim::RunTimeOptimizer>
std::int64_t largest_budget(const Model& model, typename Model::Stack::Sharding sharding, const plan::Request& request,
                            std::int64_t memory, const Optimizer& optimizer = {}) {
  constexpr StackMemory stack = stack_memory<typename Model::Stack>;
  return largest_budget(
      memory, model.units(), stack, [&](const tiling::RunTimeTiling& tiling, const UnitOptions& units) {
        return taken_by(plan::dry_run(Model(model.config(), units), sharding, tiling, request, optimizer), stack.one);
      });
}

/// A stack's policies with their numbers.
template <class Model>
struct Policies {
  ShardingOf<Model> sharding;
  TilingOf<Model> tiling;

  /// Whether one has a budget that is `auto`.
  bool ask_for_memory() const { return asks_for_memory(tiling) || weights_ask_for_memory(sharding); }
};

/// Returns the policies with budgets that are `auto` replaced: a strategy's by what `memory` leaves, a tiling's by the
/// largest that fits into it unless `cuts` is false. Prints them if `speaks`. Throws InputError if both are `auto`.
template <class Model, class Optimizer>
Policies<Model> settled(Policies<Model> policies, const Model& model, const plan::Request& request,
                        const Optimizer& optimizer, std::int64_t memory, bool speaks, bool cuts = true) {
  auto& [sharding, tiling] = policies;
  if (weights_ask_for_memory(sharding)) {
    require<InputError>(!asks_for_memory(tiling),
                        "--tiling budget:auto and budget=auto behind --sharding each take what the other leaves of a "
                        "rank's memory; give one of them in bytes");
    PolicyParts parts;
    parts.part(sharding);
    parts.set("budget", 0);
    const plan::Plan step = plan::dry_run(model, sharding, tiling, request, optimizer);
    parts.set("budget", left_for_weights(memory, step, model.units(), stack_memory<typename Model::Stack>));
    if (speaks) print_sharding_budget(policy_text(sharding), memory);
  }
  if constexpr (std::is_same_v<TilingOf<Model>, tiling::RunTimeTiling>)
    if (cuts && tiling.asks_for_memory()) {
      tiling = tiling::RunTimeTiling::budget(largest_budget(model, sharding, request, memory, optimizer));
      if (speaks) print_budget(tiling, memory);
    }
  return policies;
}

/// The advice of dry runs of the same stack.
template <class Model, class Optimizer>
std::string memory_advice(const TrainOptions& options, const typename Model::Stack::Sharding& sharding,
                          const typename Model::Stack::Tiling& tiling, const Optimizer& optimizer, int ranks,
                          std::optional<std::int64_t> memory) {
  constexpr bool chosen = std::is_same_v<typename Model::Stack::Tiling, tiling::RunTimeTiling>;
  const auto bytes = [&](const TrainOptions& other, const tiling::RunTimeTiling* other_tiling, int other_ranks) {
    typename Model::Stack::Tiling cut = tiling;
    if constexpr (chosen)
      if (other_tiling != nullptr) cut = *other_tiling;
    return taken_by(plan::dry_run(model_of<Model>(other), sharding, cut,
                                  plan_request(other, other_ranks, sharding, optimizer), optimizer),
                    !memory);
  };
  const tiling::RunTimeTiling* own = nullptr;
  if constexpr (chosen) own = &tiling;
  return memory_advice(options, own, ranks, sharding::facts_of(sharding).pieces, memory,
                       offloads_optimizer_of<typename Model::Stack::Sharding>, bytes);
}

/// Throws the same InputError on all ranks if some rank's machine has too little memory for inputs in host memory; the
/// error names the share that would do. Where both memories are one (Device::host_memory) inputs take as much either
/// way, and nothing is refused.
template <class Model, class Comm, class Optimizer>
void require_host_memory(Comm& communicator, const TrainOptions& options,
                         const typename Model::Stack::Sharding& sharding, const typename Model::Stack::Tiling& tiling,
                         const Optimizer& optimizer) {
  if (Comm::Device::host_memory || options.units.offload_inputs == 0) return;
  const int ranks = communicator.size();
  const std::int64_t memory = least_memory(communicator, host_memory_of_rank(ranks), "host memory");
  require_host_memory(options.units.offload_inputs, memory, [&](double share) {
    TrainOptions other = options;
    other.units.offload_inputs = share;
    return plan::dry_run(model_of<Model>(other), sharding, tiling, plan_request(other, ranks, sharding, optimizer),
                         optimizer)
        .offloaded_bytes;
  });
}

}  // namespace fsdp::train
