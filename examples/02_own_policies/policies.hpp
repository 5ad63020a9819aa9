// SPDX-License-Identifier: Apache-2.0
/// @file
/// A strategy, a precision and a tiling of one's own: structs that inherit nothing and are registered nowhere.
#pragma once

#include <algorithm>
#include <cstdint>
#include <string>

#include <fsdp/fsdp.hpp>

namespace mine {

/// Weights and gradients are sharded; so many units are gathered ahead of their use, in forward and in backward.
struct Sharding {
  using AtRest = fsdp::buffer::Shard;         // between steps every rank holds a part of each weight
  using Layout = fsdp::buffer::PerParameter;  // each tensor is cut by itself
  int ahead = 1;

  fsdp::sharding::Rules rules() const {
    return {.hold = fsdp::sharding::Hold::use, .reduce_every_micro_batch = true, .prefetch_depth = ahead};
  }
  std::string text() const { return "mine:ahead=" + std::to_string(ahead); }  // for logs; without it the type's name
};

/// Computes in bf16 and sends gradients in bf16; the weights that are stepped and the sums are float.
struct Precision {
  using Compute = fsdp::bf16;
  using Main = float;
  using Accumulate = float;
  using Reduce = fsdp::bf16;
};

/// As many tiles as half the sequences have tokens in a thousand, and at least `least`: a pure function of the problem.
class Tiles {
 public:
  explicit Tiles(std::int64_t least) : least_(least) {}
  fsdp::tiling::TilePlan plan(const fsdp::tiling::Problem& problem) const {
    const std::int64_t tiles = std::max(least_, problem.tokens / 2000);
    return fsdp::tiling::cut(problem, std::max<std::int64_t>(1, problem.tokens / tiles));  // tokens of a tile
  }

 private:
  std::int64_t least_;
};

}  // namespace mine
