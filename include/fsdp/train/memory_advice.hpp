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
#include <fsdp/train/options.hpp>
#include <fsdp/train/sharding_of.hpp>
#include <fsdp/train/stack_choice.hpp>
#include <fsdp/train/trainer.hpp>

namespace fsdp::train {

/// "; the whole run takes ... of each rank, and would take ... with --recompute, ...": dry runs of the same stack. Only
/// what takes less is named.
template <class Model>
std::string memory_advice(const TrainOptions& options, int ranks, int threads) {
  using Stack = typename Model::Stack;
  const auto bytes = [threads](const TrainOptions& other, int other_ranks) {
    return plan::dry_run(Model(resolve_model(other), other.units),
                         sharding_of<typename Stack::Sharding>(other.stack.sharding),
                         tiling_of<typename Stack::Tiling>(other.stack), plan_request(other, other_ranks, threads))
        .peak_bytes();
  };
  const std::int64_t now = bytes(options, ranks);
  std::string text = message("; the whole run takes ", report::bytes_text(now), " of each rank");
  std::string separator = ", and would take ";
  const auto offer = [&](const TrainOptions& other, int other_ranks, const std::string& with) {
    const std::int64_t then = bytes(other, other_ranks);
    if (then >= now) return;
    text += message(separator, report::bytes_text(then), " ", with);
    separator = ", ";
  };

  TrainOptions tiled = options, recomputed = options, both = options;
  tiled.stack.tiling = both.stack.tiling = {.kind = TilingChoice::Kind::tokens, .number = 1024};
  recomputed.units.recompute = both.units.recompute = true;
  const bool tiles = std::is_same_v<typename Stack::Tiling, tiling::RunTime> && options.stack.tiling == TilingChoice{};
  if (tiles) offer(tiled, ranks, "with --tiling tokens:1024");
  if (!options.units.recompute) offer(recomputed, ranks, "with --recompute");
  if (tiles && !options.units.recompute) offer(both, ranks, "with both");
  if (plan_request(options, ranks, threads).sequences % 2 == 0) {
    TrainOptions halved = options;
    halved.grad_accum *= 2;
    offer(halved, ranks, message("with --grad-accum ", halved.grad_accum));
    offer(options, 2 * ranks, message("on ", 2 * ranks, " ranks"));
  }
  return text + " (--dry-run tells of other strategies)";
}

}  // namespace fsdp::train
