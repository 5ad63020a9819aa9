// SPDX-License-Identifier: Apache-2.0
/// @file
/// What a strategy decides: facts about memory, and rules from which a schedule follows.
///
/// A strategy that brings its own schedule declares the facts alone.
#pragma once

#include <cstdint>

namespace fsdp::sharding {

/// What happens over the outer axis of a mesh, once a step.
enum class Across : std::uint8_t {
  nothing,     ///< there is none, or a group's own reduction covers it
  all_reduce,  ///< optimizer state is replicated over it
  shard,       ///< optimizer state is sharded over it: reduce-scatter, and a gather at the first use in a step
};

/// What memory a strategy needs and who shares it, whatever the schedule.
struct Facts {
  Across across = Across::nothing;
  bool group_after_forward = false;  ///< after forward the inner axis keeps the weights together, a part on each rank
  std::int64_t persistence_threshold = 0;  ///< tensors up to so many elements are a group of their own in each unit
};

/// How long gathered weights are held.
enum class Hold : std::uint8_t {
  use,          ///< from just before to just after each use
  micro_batch,  ///< from the first use in a micro-batch to the last
  step,         ///< from the first use in a step to its end
  always,       ///< every rank has them at rest
};

/// The short way to a schedule.
struct Rules {
  Facts facts = {};
  Hold hold = Hold::use;
  bool reduce_every_micro_batch = true;  ///< otherwise the partial sums are kept and reduced after the last
  int prefetch_depth = 1;                ///< computations that a gather is issued ahead of its use
  std::int64_t live_bound = 0;  ///< most elements gathered per use at a time; 0: as many as prefetching asks for
};

}  // namespace fsdp::sharding
