// SPDX-License-Identifier: Apache-2.0
/// @file
/// The limits that a sharded model is planned for.
#pragma once

#include <cstdint>
#include <memory>

#include <tessera/fsdp/module/units.hpp>
#include <tessera/fsdp/nn/tile_plans.hpp>

namespace fsdp {

/// The limits that a sharded model is planned for; a larger run is an error.
struct RunShape {
  std::int64_t sequence_length = 0;
  int micro_batches = 1;
  int ranks_per_sequence = 1;  ///< consecutive ranks that share each sequence (fsdp::Ulysses)
  /// Number of parts, of a few heads each, in which attention is computed if several ranks share a sequence. 0: as many
  /// as the tiling's budget requires, which dry runs determine (plan::middle_parts).
  int middle_parts = 0;
  int threads = 1;
  std::int64_t activation_bytes = 0;            ///< size of the arena, from a dry run; ignored in a dry run
  std::int64_t offloaded_activation_bytes = 0;  ///< the same for block inputs in host memory
  StepWork step_work = elementwise_work;        ///< the work that buffer::Owned balances over the ranks
  /// For generation: number of rows of each block's cache, sequences times tokens per sequence (nn::CachingBlock). 0 if
  /// there is no cache.
  std::int64_t cached_rows = 0;
  bool digests = false;   ///< whether training steps are digested (StepDigests)
  bool verifies = false;  ///< whether micro-batches may be recomputed and compared (Executor::repeat)
  /// Tiling plans of the modules, from a dry run. Default: untiled.
  std::shared_ptr<const nn::TilePlans> plans = std::make_shared<const nn::TilePlans>();
};

}  // namespace fsdp
