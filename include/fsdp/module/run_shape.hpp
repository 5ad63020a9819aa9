// SPDX-License-Identifier: Apache-2.0
/// @file
/// What a ShardedModule is planned for.
#pragma once

#include <cstdint>

#include <tessera/fsdp/module/units.hpp>

namespace fsdp {

/// The cost of an optimizer's step on a whole parameter, in any unit.
using StepWork = std::int64_t (*)(const NamedParameter&);

/// The cost for an optimizer that steps each element alone: the number of elements.
inline std::int64_t elementwise_work(const NamedParameter& parameter) { return parameter.shape.numel(); }

/// What a ShardedModule is planned for; nothing larger may run on it.
struct RunShape {
  std::int64_t sequence_length = 0;
  int micro_batches = 1;
  int threads = 1;
  std::int64_t activation_bytes = 0;            ///< size of the arena, from a dry run; ignored in a dry run
  std::int64_t offloaded_activation_bytes = 0;  ///< the same for block inputs in host memory
  StepWork step_work = elementwise_work;        ///< what buffer::Owned balances over the ranks
  /// For generation: rows of each block's cache, which is sequences times tokens per sequence (nn::CachingBlock). 0: no
  /// cache.
  std::int64_t cached_rows = 0;
};

/// What a ShardedModule is used for. A module that generates gathers all weights once and keeps them.
enum class Purpose : std::uint8_t { train, evaluate, generate };

}  // namespace fsdp
