// SPDX-License-Identifier: Apache-2.0
/// @file
/// What a ShardedModule is planned for.
#pragma once

#include <cstdint>

#include <fsdp/core/tensor.hpp>

namespace fsdp {

/// Work of stepping a tensor elementwise.
inline std::int64_t elementwise_work(const Shape& shape) { return shape.numel(); }

/// What a ShardedModule is planned for; nothing larger may run on it.
struct RunShape {
  std::int64_t sequence_length = 0;
  int micro_batches = 1;
  int threads = 1;
  std::int64_t activation_bytes = 0;            ///< the arena, from the dry run; ignored where the device only counts
  std::int64_t offloaded_activation_bytes = 0;  ///< the same for block inputs in host memory
  /// Work of the optimizer on a whole tensor, in any unit: what buffer::Owned balances over the ranks.
  std::int64_t (*step_work)(const Shape&) = elementwise_work;
};

/// What a ShardedModule is for. Generating gathers every weight once and keeps it.
enum class Purpose : std::uint8_t { train, evaluate, generate };

}  // namespace fsdp
