// SPDX-License-Identifier: Apache-2.0
/// @file
/// A strategy, a precision and a tiling policy of your own: plain structs, without a base class or registration.
#pragma once

#include <algorithm>
#include <cstdint>
#include <string>

#include <tessera/fsdp/sharding/own_strategy.hpp>  // checks the strategy in Stack
#include <tessera/trainer/train_main.hpp>

namespace mine {

/// Shards weights and gradients, and prefetches the weights of the next `ahead` units in forward and in backward.
struct Sharding {
  using AtRest = fsdp::buffer::Shard;         // between steps each rank stores a shard of every weight
  using Layout = fsdp::buffer::PerParameter;  // each tensor is sharded separately
  int ahead = 1;

  fsdp::sharding::Rules rules() const {
    return {.hold = fsdp::sharding::Hold::use, .reduce_every_micro_batch = true, .prefetch_depth = ahead};
  }
  std::string text() const { return "mine:ahead=" + std::to_string(ahead); }  // for logs; default: the type's name
};

/// Computes in bf16 and sends gradients in bf16. Main weights and gradient sums are float.
struct Precision {
  using Compute = fsdp::bf16;
  using Main = float;
  using Accumulate = float;
  using Reduce = fsdp::bf16;
};

/// One tile per 2000 tokens, but at least `least` tiles. `plan` must be a pure function of the problem.
class Tiles {
 public:
  explicit Tiles(std::int64_t least) : least_(least) {}
  fsdp::tiling::TilePlan plan(const fsdp::tiling::Problem& problem) const {
    const std::int64_t tiles = std::max(least_, problem.tokens / 2000);
    return fsdp::tiling::cut(problem, std::max<std::int64_t>(1, problem.tokens / tiles));  // tokens per tile
  }

 private:
  std::int64_t least_;
};

}  // namespace mine
