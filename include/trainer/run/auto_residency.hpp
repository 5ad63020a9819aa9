// SPDX-License-Identifier: Apache-2.0
/// @file
/// `budget=auto` behind --sharding: the bytes for gathered weights that the rest of a step leaves of a rank's memory.
#pragma once

#include <cstdint>
#include <string>

#include <tessera/fsdp/core/error.hpp>
#include <tessera/fsdp/core/policy_parts.hpp>
#include <tessera/fsdp/core/policy_text.hpp>
#include <tessera/fsdp/module/units.hpp>
#include <tessera/fsdp/plan/dry_run.hpp>
#include <tessera/fsdp/sharding/schedule_of.hpp>
#include <tessera/trainer/flags/model_choice.hpp>
#include <tessera/trainer/flags/options.hpp>
#include <tessera/trainer/run/auto_budget.hpp>
#include <tessera/trainer/run/offload_advice.hpp>
#include <tessera/trainer/run/rank_memory.hpp>
#include <tessera/trainer/run/step_plan.hpp>

namespace fsdp::train {

/// Returns whether a strategy's budget for gathered weights is `auto`, whose bytes are not known yet.
template <class Sharding>
bool weights_ask_for_memory(const Sharding& sharding) {
  return sharding::facts_of(sharding).budget == memory_left;
}

/// Returns what a step leaves of `memory` for gathered weights; `step`: its plan without a budget, with `units`. Throws
/// InputError if the rest of the step takes more than all; the error names the flags that the step has not. Whether
/// weights fit into what is left, the plan finds out.
std::int64_t left_for_weights(std::int64_t memory, const plan::Plan& step, const UnitOptions& units, StackMemory stack);

/// Prints the strategy with the budget that was found, and the memory per rank that it was found for.
void print_sharding_budget(const std::string& sharding, std::int64_t memory);

/// Replaces a strategy's `budget=auto` by what `memory` leaves, and prints it if `speaks`. Returns any other strategy
/// unchanged. Throws InputError if the tiling asks for what is left too.
template <class Model, class Optimizer>
typename Model::Stack::Sharding settled_sharding(typename Model::Stack::Sharding sharding,
                                                 const typename Model::Stack::Tiling& tiling, const Model& model,
                                                 const plan::Request& request, const Optimizer& optimizer,
                                                 std::int64_t memory, bool speaks) {
  if (!weights_ask_for_memory(sharding)) return sharding;
  require<InputError>(!asks_for_memory(tiling),
                      "--tiling budget:auto and budget=auto behind --sharding each take what the other leaves of a "
                      "rank's memory; give one of them in bytes");
  PolicyParts parts;
  parts.part(sharding);
  parts.set("budget", 0);
  const plan::Plan step = plan::dry_run(model, sharding, tiling, request, optimizer);
  parts.set("budget", left_for_weights(memory, step, model.units(), stack_memory<typename Model::Stack>));
  if (speaks) print_sharding_budget(policy_text(sharding), memory);
  return sharding;
}

/// The same, collectively: all ranks get the budget that fits the rank with the least memory. Rank 0 prints it.
template <class Model, class Comm, class Optimizer>
typename Model::Stack::Sharding settled_sharding(Comm& communicator, const typename Model::Stack::Sharding& sharding,
                                                 const typename Model::Stack::Tiling& tiling,
                                                 const TrainOptions& options, const Optimizer& optimizer) {
  if (!weights_ask_for_memory(sharding)) return sharding;
  const int ranks = communicator.size();
  return settled_sharding(sharding, tiling, model_of<Model>(options), plan_request(options, ranks, sharding, optimizer),
                          optimizer, least_memory(communicator, options), communicator.rank() == 0);
}

}  // namespace fsdp::train
