// SPDX-License-Identifier: Apache-2.0
/// @file
/// The decisions of a strategy: facts about memory, and rules from which a schedule is derived.
///
/// A strategy with its own schedule declares only the facts.
#pragma once

#include <cstdint>

#include <tessera/fsdp/core/lists.hpp>

namespace fsdp::sharding {

/// The communication over the outer axis of a mesh, once per step.
enum class Across : std::uint8_t {
  nothing,     ///< there is no outer axis, or a group's own reduction covers it
  all_reduce,  ///< optimizer state is replicated over it
  shard,       ///< optimizer state is sharded over it: reduce-scatter, and a gather at the first use in a step
};

/// The memory that a strategy needs, and the ranks that share it, independent of the schedule.
struct Facts {
  Across across = Across::nothing;         ///< communication over the mesh's outer axis
  bool group_after_forward = false;        ///< after forward each rank of the inner axis keeps a part of the weights
  std::int64_t persistence_threshold = 0;  ///< tensors of at most this many elements form a separate group per unit
  int pieces = 0;  ///< pieces of a step's batch, the same on any number of ranks (piece_of); 0: not split
  /// Upper bound for the bytes of the slots for gathered weights. In training and evaluation, each group then stays
  /// gathered for the duration that minimises the gathered bytes (residency.hpp), which overrides Rules::hold. 0: no
  /// bound; below 0: not known yet (fsdp::memory_left).
  std::int64_t budget = 0;
  /// Whether every rank holds all weights between steps. facts_of sets it if AtRest is Replicate. A type of which only
  /// some values replicate declares Shard, and sets this for those values.
  bool whole_at_rest = false;
};

/// Pieces make results independent of the number of ranks P. A step's batch is split into V pieces, the same for every
/// P; piece v is micro-batch v / P of rank v % P. The owner of a shard adds the pieces' gradients in order, so that the
/// sum is ((g0 + g1) + g2) + ... for every P. If P does not divide V, some ranks have no piece in the last micro-batch.
/// If several ranks share each sequence, "rank" here means such a group of ranks (SequenceGroup), and P is the number
/// of groups.
/// @{

/// Returns the number of micro-batches of a step of `pieces` (at least 1) pieces on `ranks` ranks.
constexpr int micro_batches_of(int pieces, int ranks) { return (pieces - 1) / ranks + 1; }

/// Returns the index of a rank's piece in a micro-batch; the rank has a piece only if this index is below `pieces`.
constexpr int piece_of(int micro_batch, int rank, int ranks) { return micro_batch * ranks + rank; }

/// Returns the number of pieces that a rank computes, one in each of its first micro-batches.
constexpr int pieces_of_rank(int pieces, int rank, int ranks) {
  return pieces > rank ? (pieces - rank - 1) / ranks + 1 : 0;
}
/// @}

/// How long weights stay gathered.
enum class Hold : std::uint8_t {
  use,          ///< from just before to just after each use
  micro_batch,  ///< from the first use in a micro-batch to the last
  step,         ///< from the first use in a step to its end
  always,       ///< weights are never resharded: every rank has them at rest
};

/// Rules from which `make_schedule` derives a schedule.
struct Rules {
  Facts facts = {};                      ///< memory and use of the mesh
  Hold hold = Hold::use;                 ///< how long a unit's weights stay gathered
  bool reduce_every_micro_batch = true;  ///< false: partial sums are kept, and reduced after the last micro-batch
  int prefetch_depth = 1;                ///< number of computations by which a gather is issued before its use
  /// Upper bound for the elements gathered at the same time for single uses; 0: no bound.
  std::int64_t live_bound = 0;
};

}  // namespace fsdp::sharding

FSDP_LIST(fsdp::sharding::Hold)
