// SPDX-License-Identifier: Apache-2.0
/// @file
/// `--tiling budget:auto`: finds the largest tiling budget with which a rank's dry run fits into its memory.
#pragma once

#include <cstdint>
#include <type_traits>

#include <tessera/fsdp/core/function_ref.hpp>
#include <tessera/fsdp/module/units.hpp>
#include <tessera/fsdp/plan/dry_run.hpp>
#include <tessera/fsdp/training/run_time_optimizer.hpp>
#include <tessera/fsdp/training/training.hpp>
#include <tessera/trainer/flags/model_choice.hpp>
#include <tessera/trainer/flags/options.hpp>
#include <tessera/trainer/run/offload_advice.hpp>
#include <tessera/trainer/run/rank_memory.hpp>
#include <tessera/trainer/run/step_plan.hpp>

namespace fsdp::train {

/// Searches for the largest budget whose peak is at most `memory`, to one part in 256. `taken` returns a rank's planned
/// bytes with a tiling, and with other options for blocks: those of the run are `units`. Returns `memory` if the
/// untiled step fits. Throws InputError if no budget fits; the error names the least bytes that were found, and says
/// whether a budget fits with --recompute, or else, where host memory is apart, with the least share of inputs in it.
std::int64_t largest_budget(std::int64_t memory, const UnitOptions& units, StackMemory stack,
                            FunctionRef<TakenBytes(const tiling::RunTimeTiling&, const UnitOptions&)> taken);
template <class Model, class Optimizer = optim::RunTimeOptimizer>
std::int64_t largest_budget(const Model& model, typename Model::Stack::Sharding sharding, const plan::Request& request,
                            std::int64_t memory, const Optimizer& optimizer = {}) {
  constexpr StackMemory stack = stack_memory<typename Model::Stack>;
  return largest_budget(
      memory, model.units(), stack, [&](const tiling::RunTimeTiling& tiling, const UnitOptions& units) {
        return taken_by(plan::dry_run(Model(model.config(), units), sharding, tiling, request, optimizer), stack.one);
      });
}

/// Returns whether a tiling policy is `budget:auto`, whose bytes are not known yet.
template <class Tiling>
bool asks_for_memory(const Tiling& tiling) {
  if constexpr (std::is_same_v<Tiling, tiling::RunTimeTiling>)
    return tiling.asks_for_memory();
  else
    return false;
}

/// Prints the budget that was found and the memory per rank that it was found for.
void print_budget(const tiling::RunTimeTiling& budget, std::int64_t memory);

/// Replaces `budget:auto` by the largest budget that fits into `memory`, and prints it if `speaks`. Returns any other
/// tiling unchanged.
template <class Model, class Optimizer>
typename Model::Stack::Tiling settled(const typename Model::Stack::Tiling& tiling, const Model& model,
                                      const typename Model::Stack::Sharding& sharding, const plan::Request& request,
                                      const Optimizer& optimizer, std::int64_t memory, bool speaks) {
  if constexpr (std::is_same_v<typename Model::Stack::Tiling, tiling::RunTimeTiling>)
    if (tiling.asks_for_memory()) {
      const auto budget = tiling::RunTimeTiling::budget(largest_budget(model, sharding, request, memory, optimizer));
      if (speaks) print_budget(budget, memory);
      return budget;
    }
  return tiling;
}

/// The same, collectively: all ranks get the budget that fits the rank with the least memory. Rank 0 prints it.
template <class Model, class Comm, class Optimizer>
typename Model::Stack::Tiling settled(Comm& communicator, const typename Model::Stack::Tiling& tiling,
                                      const typename Model::Stack::Sharding& sharding, const TrainOptions& options,
                                      const Optimizer& optimizer) {
  if (!asks_for_memory(tiling)) return tiling;
  return settled(tiling, model_of<Model>(options), sharding,
                 plan_request(options, communicator.size(), sharding, optimizer), optimizer,
                 least_memory(communicator, options), communicator.rank() == 0);
}

}  // namespace fsdp::train
