// SPDX-License-Identifier: Apache-2.0
/// @file
/// What a run would take of each rank in other ways: for one that has no room.
#pragma once

#include <cstdint>
#include <string>
#include <type_traits>

#include <fsdp/core/function_ref.hpp>
#include <fsdp/plan/dry_run.hpp>
#include <fsdp/train/model_choice.hpp>
#include <fsdp/train/options.hpp>
#include <fsdp/train/training.hpp>

namespace fsdp::train {

/// "; the whole run takes ... of each rank, and would take ... with --recompute, ...": dry runs of the same stack. Only
/// what takes less is named.
/// `bytes`: of a dry run with other options and ranks, and another tiling where it is not nullptr; `tiling`: the run's,
/// where it is one that is chosen when the program runs.
std::string memory_advice(
    const TrainOptions& options, const tiling::RunTime* tiling, int ranks,
    FunctionRef<std::int64_t(const TrainOptions& options, const tiling::RunTime* tiling, int ranks)> bytes);
template <class Model, class Optimizer>
std::string memory_advice(const TrainOptions& options, const typename Model::Stack::Sharding& sharding,
                          const typename Model::Stack::Tiling& tiling, const Optimizer& optimizer, int ranks) {
  constexpr bool chosen = std::is_same_v<typename Model::Stack::Tiling, tiling::RunTime>;
  const auto bytes = [&](const TrainOptions& other, const tiling::RunTime* other_tiling, int other_ranks) {
    typename Model::Stack::Tiling cut = tiling;
    if constexpr (chosen)
      if (other_tiling != nullptr) cut = *other_tiling;
    return plan::dry_run(model_of<Model>(other), sharding, cut, plan_request(other, other_ranks, optimizer), optimizer)
        .peak_bytes();
  };
  const tiling::RunTime* own = nullptr;
  if constexpr (chosen) own = &tiling;
  return memory_advice(options, own, ranks, bytes);
}

}  // namespace fsdp::train
