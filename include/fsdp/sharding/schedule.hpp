// SPDX-License-Identifier: Apache-2.0
/// @file
/// The schedule of a step as a value: gathers, computations, releases and reductions, in order.
///
/// Strategies give rules, a model gives its units' groups of weights; `make_schedule` (scheduler.hpp) derives the list.
/// The executor runs that list and nothing else. Gathering for backward is derived too: a unit whose backward takes no
/// weights does not appear as a user of them, and nothing before the first trainable unit has a backward at all.
#pragma once

#include <cstdint>
#include <string_view>
#include <vector>

namespace fsdp::sharding {

enum class Action : std::uint8_t {
  gather,           ///< start the all-gather of a group's weights
  gather_in_group,  ///< the same from the parts that `keep` left with k ranks
  gather_across,    ///< start to gather the shards at rest over the mesh's outer axis
  forward,          ///< of a unit; waits for its gathers
  loss,             ///< forward and backward of the last unit
  backward,         ///< of a unit
  keep,             ///< copy this rank's part, of k, of a group's gathered weights
  release,          ///< give a group's gathered weights up
  reduce,           ///< start the reduction of a group's gradients
  reduce_across,    ///< start to reduce the summed shards over the mesh's outer axis
};

/// Whether an action is a unit's and not a group's.
constexpr bool computes(Action action) {
  return action == Action::forward || action == Action::loss || action == Action::backward;
}

/// `index` is a unit where something is computed, a group of weights elsewhere.
struct Event {
  Action action = Action::forward;
  int index = 0;
  int micro_batch = 0;
  friend constexpr bool operator==(const Event&, const Event&) = default;
};

using Schedule = std::vector<Event>;

/// How long gathered weights are held.
enum class Hold : std::uint8_t {
  use,          ///< from just before to just after each use
  micro_batch,  ///< from the first use in a micro-batch to the last
  step,         ///< from the first use in a step to its end
  always,       ///< every rank has them at rest
};

/// What happens over the outer axis of a mesh, once a step.
enum class Across : std::uint8_t {
  nothing,     ///< there is none, or a group's own reduction covers it
  all_reduce,  ///< optimizer state is replicated over it
  shard,       ///< optimizer state is sharded over it: reduce-scatter, and a gather at the first use in a step
};

/// What a strategy decides about a step.
struct Rules {
  Hold hold = Hold::use;
  bool reduce_every_micro_batch = true;  ///< otherwise the partial sums are kept and reduced after the last
  int prefetch_depth = 1;                ///< computations that a gather is issued ahead of its use
  Across across = Across::nothing;
  bool group_after_forward = false;  ///< after forward k ranks keep the weights together, and gather them from there
  bool keep_last_block = true;       ///< the last block's weights stay through the head
  std::int64_t persistence_threshold = 0;  ///< tensors up to so many elements are held through a step once gathered
  std::int64_t live_bound = 0;  ///< most elements gathered per use at a time; 0: as many as prefetching asks for
};

/// What differs between the groups of one model.
struct GroupRules {
  Hold hold = Hold::use;
  bool reduce_every_micro_batch = true;
  Across across = Across::nothing;
  bool trainable = true;      ///< frozen weights have no gradient
  std::int64_t elements = 0;  ///< gathered; read where there is a live bound
};

/// Groups of weights that a unit uses, and whether its backward needs them.
struct UnitUse {
  std::vector<int> groups;
  bool backward_needs_weights = true;
};

enum class Pass : std::uint8_t { train, evaluate };  ///< evaluate: forward only, the loss makes no gradient

constexpr std::string_view name_of(Action action) {
  switch (action) {
    case Action::gather: return "gather";
    case Action::gather_in_group: return "gather-in-group";
    case Action::gather_across: return "gather-across";
    case Action::forward: return "forward";
    case Action::loss: return "loss";
    case Action::backward: return "backward";
    case Action::keep: return "keep";
    case Action::release: return "release";
    case Action::reduce: return "reduce";
    case Action::reduce_across: return "reduce-across";
  }
  return "?";
}

}  // namespace fsdp::sharding
