// SPDX-License-Identifier: Apache-2.0
/// @file
/// What a run would take of each rank in other ways: for one that has no room.
#pragma once

#include <cstdint>
#include <string>
#include <type_traits>

#include <fsdp/core/error.hpp>
#include <fsdp/plan/dry_run.hpp>
#include <fsdp/report/report.hpp>
#include <fsdp/train/model_choice.hpp>
#include <fsdp/train/options.hpp>
#include <fsdp/train/training.hpp>

namespace fsdp::train {

/// "; the whole run takes ... of each rank, and would take ... with --recompute, ...": dry runs of the same stack. Only
/// what takes less is named.
template <class Model, class Optimizer>
std::string memory_advice(const TrainOptions& options, const typename Model::Stack::Sharding& sharding,
                          const typename Model::Stack::Tiling& tiling, const Optimizer& optimizer, int ranks) {
  using Tiling = typename Model::Stack::Tiling;
  const auto bytes = [&](const TrainOptions& other, const Tiling& other_tiling, int other_ranks) {
    return plan::dry_run(model_of<Model>(other), sharding, other_tiling, plan_request(other, other_ranks, optimizer),
                         optimizer)
        .peak_bytes();
  };
  const std::int64_t now = bytes(options, tiling, ranks);
  std::string text = message("; the whole run takes ", report::bytes_text(now), " of each rank");
  std::string separator = ", and would take ";
  const auto offer = [&](const TrainOptions& other, const Tiling& other_tiling, int other_ranks,
                         const std::string& with) {
    const std::int64_t then = bytes(other, other_tiling, other_ranks);
    if (then >= now) return;
    text += message(separator, report::bytes_text(then), " ", with);
    separator = ", ";
  };

  TrainOptions recomputed = options;
  recomputed.units.recompute = true;
  if constexpr (std::is_same_v<Tiling, tiling::RunTime>) {
    const Tiling tokens = tiling::RunTime::tokens(1024);
    const bool tiles = tiling == Tiling{};
    if (tiles) offer(options, tokens, ranks, "with --tiling tokens:1024");
    if (!options.units.recompute) offer(recomputed, tiling, ranks, "with --recompute");
    if (tiles && !options.units.recompute) offer(recomputed, tokens, ranks, "with both");
  } else if (!options.units.recompute) {
    offer(recomputed, tiling, ranks, "with --recompute");
  }
  if (step_size(options, ranks).sequences % 2 == 0) {
    TrainOptions halved = options;
    halved.grad_accum *= 2;
    offer(halved, tiling, ranks, message("with --grad-accum ", halved.grad_accum));
    offer(options, tiling, 2 * ranks, message("on ", 2 * ranks, " ranks"));
  }
  return text + " (--dry-run tells of other strategies)";
}

}  // namespace fsdp::train
