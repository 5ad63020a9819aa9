// SPDX-License-Identifier: Apache-2.0
/// @file
/// Which placement weights, gradients and optimizer state have at rest and in use: all sharding strategies.
///
/// To add one: a struct with the members of the concept here, its lists in tests/sharding/schedule_test.cpp, its name
/// in src/train/stack_choice.cpp and cmake/stacks.cmake.
#pragma once

#include <concepts>
#include <cstdint>
#include <string_view>

#include <fsdp/buffer/distributed_buffer.hpp>
#include <fsdp/buffer/layout.hpp>
#include <fsdp/sharding/schedule.hpp>

namespace fsdp {

/// Whether FullyShard gives a unit's gathered weights up after its forward and gathers again for its backward.
enum class ReshardAfterForward : std::uint8_t { no, yes };

/// FSDP2: every tensor cut along its first axis; weights gathered unit by unit, gradients reduce-scattered at once.
template <ReshardAfterForward reshard = ReshardAfterForward::yes>
struct FullyShard {
  static constexpr std::string_view name = reshard == ReshardAfterForward::yes ? "fsdp2" : "fsdp2:no-reshard";
  using AtRest = buffer::Shard;
  using Layout = buffer::PerParameter;
  int prefetch_depth = 1;

  constexpr sharding::Rules rules() const {
    return {.hold = reshard == ReshardAfterForward::yes ? sharding::Hold::use : sharding::Hold::micro_batch,
            .reduce_every_micro_batch = true,
            .prefetch_depth = prefetch_depth};
  }
};

/// ZeRO stage 1: the optimizer's state is sharded. Weights are gathered at their first use in a step and kept to its
/// end; gradients are summed over micro-batches and reduce-scattered once.
struct Zero1 {
  static constexpr std::string_view name = "zero1";
  using AtRest = buffer::Shard;
  using Layout = buffer::Flat;

  constexpr sharding::Rules rules() const { return {.hold = sharding::Hold::step, .reduce_every_micro_batch = false}; }
};

/// ZeRO stage 2: as stage 1, with gradients reduce-scattered after every micro-batch, so that only their shard is kept.
struct Zero2 {
  static constexpr std::string_view name = "zero2";
  using AtRest = buffer::Shard;
  using Layout = buffer::Flat;

  constexpr sharding::Rules rules() const { return {.hold = sharding::Hold::step, .reduce_every_micro_batch = true}; }
};

/// ZeRO stage 3: as FSDP2, with each unit's tensors as one range cut into equal parts.
struct Zero3 {
  static constexpr std::string_view name = "zero3";
  using AtRest = buffer::Shard;
  using Layout = buffer::Flat;
  int prefetch_depth = 1;

  constexpr sharding::Rules rules() const {
    return {.hold = sharding::Hold::use, .reduce_every_micro_batch = true, .prefetch_depth = prefetch_depth};
  }
};

/// Data parallelism (DDP): every rank has all weights; gradients are summed over micro-batches and all-reduced once.
struct Replicated {
  static constexpr std::string_view name = "replicated";
  using AtRest = buffer::Replicate;
  using Layout = buffer::Flat;

  constexpr sharding::Rules rules() const {
    return {.hold = sharding::Hold::always, .reduce_every_micro_batch = false};
  }
};

/// A sharding strategy: the placement at rest of weights, gradients and optimizer state, a layout, and the step's
/// rules.
template <class S>
concept ShardingStrategy = std::copyable<S> && buffer::Placement<typename S::AtRest> &&
    buffer::LayoutPolicy<typename S::Layout> && requires(const S strategy) {
  { strategy.rules() } -> std::same_as<sharding::Rules>;
  { S::name } -> std::convertible_to<std::string_view>;
};

/// Says in words what a type lacks to be a sharding strategy.
template <class S>
consteval bool check_sharding() {
  static_assert(
      requires { typename S::AtRest; },
      "fsdp: a sharding strategy lacks the type AtRest (the placement of weights between steps); add "
      "'using AtRest = fsdp::buffer::Shard;' or Replicate");
  static_assert(
      requires { typename S::Layout; },
      "fsdp: a sharding strategy lacks the type Layout; add 'using Layout = fsdp::buffer::PerParameter;' or Flat");
  static_assert(
      requires(const S strategy) { strategy.rules(); },
      "fsdp: a sharding strategy lacks fsdp::sharding::Rules rules() const; see fsdp/sharding/strategies.hpp");
  static_assert(
      requires { S::name; }, "fsdp: a sharding strategy lacks a name; add 'static constexpr std::string_view name'");
  return ShardingStrategy<S>;
}

}  // namespace fsdp
