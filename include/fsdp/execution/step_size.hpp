// SPDX-License-Identifier: Apache-2.0
/// @file
/// The size of one rank's step, and the limits that a sharded model is planned for.
#pragma once

#include <algorithm>
#include <cstdint>
#include <memory>

#include <tessera/fsdp/module/units.hpp>
#include <tessera/fsdp/nn/tile_plans.hpp>

namespace fsdp {

/// The size of one rank's step.
struct StepSize {
  std::int64_t sequences = 1;  ///< number of sequences in one micro-batch
  bool fewer = false;  ///< whether micro-batches may have fewer sequences; each number is planned, which takes longer
  std::int64_t sequence_length = 0;  ///< number of positions of a sequence
  /// Number of consecutive ranks that share each sequence; above 1 only with Ulysses as the stack's Sequence.
  int ranks_per_sequence = 1;
  /// Number of parts, of a few heads each, in which attention is computed if several ranks share a sequence. 0: as many
  /// as the tiling's budget requires, which dry runs determine (plan::middle_parts).
  int middle_parts = 0;
  int micro_batches = 1;  ///< number in a step; see sharding::micro_batches_of if it is cut into pieces
  int threads = 0;        ///< number of threads of each rank; 0: cores / ranks, at least 1 (train::plan_request)
  /// Number of rows of a batch whose logits are computed. 0: all rows for generation, none for training
  /// (Executor::evaluate_logits).
  std::int64_t logit_rows = 0;
  /// For generation: number of rows of each block's cache, sequences times tokens per sequence (nn::CachingBlock). 0 if
  /// there is no cache.
  std::int64_t cached_rows = 0;
  bool digests = false;   ///< whether training steps are digested (StepDigests)
  bool verifies = false;  ///< whether micro-batches may be recomputed and compared (Executor::repeat)
};

/// The limits that a sharded model is planned for; a larger run is an error.
struct RunShape {
  StepSize size = {};
  std::int64_t activation_bytes = 0;            ///< size of the arena, from a dry run; ignored in a dry run
  std::int64_t offloaded_activation_bytes = 0;  ///< the same for block inputs in host memory
  StepWork step_work = {};                      ///< what layouts use of the optimizer: optim::step_work(optimizer)
  /// Tiling plans of the modules, from a dry run. Default: untiled.
  std::shared_ptr<const nn::TilePlans> plans = nn::shared_plans();

  /// Returns the number of threads of a rank; 1 if the size leaves it open.
  int threads() const { return std::max(size.threads, 1); }
};

}  // namespace fsdp
