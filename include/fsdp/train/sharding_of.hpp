// SPDX-License-Identifier: Apache-2.0
/// @file
/// From what --sharding says to a value of a strategy's type.
#pragma once

#include <algorithm>
#include <cstdint>

#include <fsdp/sharding/strategies.hpp>
#include <fsdp/train/stack_choice.hpp>

namespace fsdp::train {

/// The numbers of a strategy, for whatever of them its type has.
template <class Sharding>
Sharding sharding_of(const ShardingChoice& choice) {
  Sharding sharding{};
  if constexpr (requires { sharding.group; })
    sharding.group = static_cast<int>(std::max<std::int64_t>(choice.number, 1));
  if constexpr (requires { sharding.inner; }) sharding.inner = sharding_of<decltype(sharding.inner)>(choice);
  if constexpr (requires { sharding.prefetch_depth; })
    sharding.prefetch_depth = static_cast<int>(choice.prefetch_depth);
  if constexpr (requires { sharding.reduce; })
    sharding.reduce = choice.deferred ? ReduceGradients::last_micro_batch : ReduceGradients::every_micro_batch;
  if constexpr (requires { sharding.persistence_threshold; }) sharding.persistence_threshold = choice.persistence;
  if constexpr (requires { sharding.live_bound; }) sharding.live_bound = choice.live_bound;
  return sharding;
}

}  // namespace fsdp::train
