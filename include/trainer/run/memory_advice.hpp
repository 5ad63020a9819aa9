// SPDX-License-Identifier: Apache-2.0
/// @file
/// Advice for a run that does not fit into memory: what it would take with other flags.
#pragma once

#include <cstdint>
#include <string>
#include <type_traits>

#include <tessera/fsdp/core/function_ref.hpp>
#include <tessera/fsdp/plan/dry_run.hpp>
#include <tessera/fsdp/training/training.hpp>
#include <tessera/trainer/flags/model_choice.hpp>
#include <tessera/trainer/flags/options.hpp>
#include <tessera/trainer/run/step_plan.hpp>

namespace fsdp::train {

/// Returns "; the whole run takes ... of each rank, and would take ... with --recompute, ...", by dry runs of the same
/// stack. Names only alternatives that take less. `tiling`: the run's tiling; nullptr if it is fixed at compile time.
/// `pieces`: as for check_batch. `bytes`: makes a dry run with other options, tiling (nullptr: the run's own) and
/// number of ranks; returns its peak.
std::string memory_advice(
    const TrainOptions& options, const tiling::RunTimeTiling* tiling, int ranks, int pieces,
    FunctionRef<std::int64_t(const TrainOptions& options, const tiling::RunTimeTiling* tiling, int ranks)> bytes);
template <class Model, class Optimizer>
std::string memory_advice(const TrainOptions& options, const typename Model::Stack::Sharding& sharding,
                          const typename Model::Stack::Tiling& tiling, const Optimizer& optimizer, int ranks) {
  constexpr bool chosen = std::is_same_v<typename Model::Stack::Tiling, tiling::RunTimeTiling>;
  const auto bytes = [&](const TrainOptions& other, const tiling::RunTimeTiling* other_tiling, int other_ranks) {
    typename Model::Stack::Tiling cut = tiling;
    if constexpr (chosen)
      if (other_tiling != nullptr) cut = *other_tiling;
    return plan::dry_run(model_of<Model>(other), sharding, cut, plan_request(other, other_ranks, sharding, optimizer),
                         optimizer)
        .peak_bytes();
  };
  const tiling::RunTimeTiling* own = nullptr;
  if constexpr (chosen) own = &tiling;
  return memory_advice(options, own, ranks, sharding::facts_of(sharding).pieces, bytes);
}

}  // namespace fsdp::train
