// SPDX-License-Identifier: Apache-2.0
/// @file
/// What a strategy decides: facts about memory, and rules that imply a schedule.
///
/// A strategy with its own schedule declares only the facts.
#pragma once

#include <cstdint>

#include <tessera/fsdp/core/lists.hpp>

namespace fsdp::sharding {

/// What happens over the outer axis of a mesh, once per step.
enum class Across : std::uint8_t {
  nothing,     ///< there is no outer axis, or a group's own reduction covers it
  all_reduce,  ///< optimizer state is replicated over it
  shard,       ///< optimizer state is sharded over it: reduce-scatter, and a gather at the first use in a step
};

/// What memory a strategy needs and which ranks share it, independent of the schedule.
struct Facts {
  Across across = Across::nothing;         ///< over the mesh's outer axis
  bool group_after_forward = false;        ///< after forward each rank of the inner axis keeps a part of the weights
  std::int64_t persistence_threshold = 0;  ///< tensors of at most so many elements form a separate group per unit
  int pieces = 0;  ///< pieces of a step's batch, the same on any number of ranks (piece_of); 0: the batch is not cut
  /// Most bytes of the slots for gathered weights: training and evaluating hold each group as long as gathers the least
  /// (residency.hpp), whatever Rules::hold says. 0: no bound; below 0: not known yet (fsdp::memory_left).
  std::int64_t budget = 0;
  /// Every rank holds all weights between steps. facts_of sets it where AtRest is Replicate; a type of which some
  /// values replicate has Shard, and sets it for these.
  bool whole_at_rest = false;
};

/// Pieces make results independent of the number of ranks P. A step's batch is cut into V pieces, for every P alike;
/// piece v is micro-batch v / P of rank v % P. An owner of a shard adds the pieces' gradients in order, so that the sum
/// is ((g0 + g1) + g2) + ... for every P. Where P does not divide V, some ranks have no piece in the last micro-batch.
/// Where several ranks share each sequence, these ranks and their number P are those of groups (SequenceGroup).
/// @{

/// Returns the micro-batches of a step of `pieces` pieces, at least one, on `ranks` ranks.
constexpr int micro_batches_of(int pieces, int ranks) { return (pieces - 1) / ranks + 1; }

/// Returns the number of a rank's piece in a micro-batch; it has one if that number is below `pieces`.
constexpr int piece_of(int micro_batch, int rank, int ranks) { return micro_batch * ranks + rank; }

/// Returns the number of pieces that a rank computes: those of its first micro-batches.
constexpr int pieces_of_rank(int pieces, int rank, int ranks) {
  return pieces > rank ? (pieces - rank - 1) / ranks + 1 : 0;
}
/// @}

/// How long gathered weights are held.
enum class Hold : std::uint8_t {
  use,          ///< from just before to just after each use
  micro_batch,  ///< from the first use in a micro-batch to the last
  step,         ///< from the first use in a step to its end
  always,       ///< every rank has them at rest
};

/// Rules from which `make_schedule` derives a schedule.
struct Rules {
  Facts facts = {};                      ///< what memory and mesh must know
  Hold hold = Hold::use;                 ///< how long a unit's weights stay gathered
  bool reduce_every_micro_batch = true;  ///< false: partial sums are kept, and reduced after the last one
  int prefetch_depth = 1;                ///< how many computations ahead of its use a gather is issued
  std::int64_t live_bound = 0;           ///< most elements gathered at a time for single uses; 0: no bound
};

}  // namespace fsdp::sharding

FSDP_LIST(fsdp::sharding::Hold)
