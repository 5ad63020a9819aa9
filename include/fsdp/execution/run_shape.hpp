// SPDX-License-Identifier: Apache-2.0
/// @file
/// What a sharded model is planned for.
#pragma once

#include <cstdint>
#include <memory>

#include <tessera/fsdp/module/units.hpp>
#include <tessera/fsdp/nn/tile_plans.hpp>

namespace fsdp {

/// What a sharded model is planned for; nothing larger may run on it.
struct RunShape {
  std::int64_t sequence_length = 0;
  int micro_batches = 1;
  int ranks_per_sequence = 1;  ///< consecutive ranks that share each sequence (fsdp::Ulysses)
  /// In which attention is computed where several ranks share a sequence, a few heads at a time. 0: in as many as the
  /// tiling's budget asks for, which dry runs find (plan::middle_parts).
  int middle_parts = 0;
  int threads = 1;
  std::int64_t activation_bytes = 0;            ///< size of the arena, from a dry run; ignored in a dry run
  std::int64_t offloaded_activation_bytes = 0;  ///< the same for block inputs in host memory
  StepWork step_work = elementwise_work;        ///< what buffer::Owned balances over the ranks
  /// For generation: rows of each block's cache, sequences times tokens per sequence (nn::CachingBlock). 0: no cache.
  std::int64_t cached_rows = 0;
  bool digests = false;   ///< training steps are digested (StepDigests)
  bool verifies = false;  ///< micro-batches may be computed again and compared (Executor::repeat)
  /// How modules are tiled, from a dry run. Default: untiled.
  std::shared_ptr<const nn::TilePlans> plans = std::make_shared<const nn::TilePlans>();
};

}  // namespace fsdp
