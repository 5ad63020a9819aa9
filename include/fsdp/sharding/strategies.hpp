// SPDX-License-Identifier: Apache-2.0
/// @file
/// Which placement weights, gradients and optimizer state have at rest and in use: all sharding strategies.
///
/// To add one: a struct with the members of the concept here, its lists in tests/sharding/schedule_test.cpp, its place
/// in sharding/run_time.hpp, its name in src/cli/stack_choice.cpp and cmake/stacks.cmake.
#pragma once

#include <concepts>
#include <cstdint>
#include <string>
#include <string_view>
#include <type_traits>

#include <fsdp/buffer/distributed_buffer.hpp>
#include <fsdp/buffer/layout.hpp>
#include <fsdp/core/error.hpp>
#include <fsdp/core/joined.hpp>
#include <fsdp/core/policy_text.hpp>
#include <fsdp/sharding/rules.hpp>
#include <fsdp/sharding/schedule_of.hpp>

namespace fsdp {
namespace detail {

/// ":prefetch=2", or nothing for the usual value.
inline std::string number_text(const char* what, std::int64_t value, std::int64_t usual = 0) {
  return value == usual ? "" : message(":", what, "=", value);
}

}  // namespace detail

/// What FullyShard does with a unit's gathered weights between its forward and its backward: keeps them, gives them up
/// and gathers them again, or gives up all but a part and gathers that again from a few neighbouring ranks.
enum class ReshardAfterForward : std::uint8_t { no, yes, to_group };

/// When gradients are reduced: after every micro-batch, so that shards are kept between them, or partial sums once.
enum class ReduceGradients : std::uint8_t { every_micro_batch, last_micro_batch };

/// FSDP2: every tensor cut along its first axis; weights gathered unit by unit, gradients reduce-scattered at once.
template <ReshardAfterForward reshard = ReshardAfterForward::yes>
struct FullyShard {
  static constexpr std::string_view name = reshard == ReshardAfterForward::yes  ? "fsdp2"
                                           : reshard == ReshardAfterForward::no ? "fsdp2:no-reshard"
                                                                                : "fsdp2:K";
  static constexpr int mesh_axes = reshard == ReshardAfterForward::to_group ? 2 : 1;
  using AtRest = buffer::Shard;
  using Layout = buffer::PerParameter;
  int prefetch_depth = 1;
  ReduceGradients reduce = ReduceGradients::every_micro_batch;
  int group = 1;  ///< to_group: ranks that keep the weights together after forward

  int ranks_per_group() const requires(mesh_axes == 2) { return group; }
  constexpr sharding::Rules rules() const {
    return {.facts = {.group_after_forward = reshard == ReshardAfterForward::to_group},
            .hold = reshard == ReshardAfterForward::no ? sharding::Hold::micro_batch : sharding::Hold::use,
            .reduce_every_micro_batch = reduce == ReduceGradients::every_micro_batch,
            .prefetch_depth = prefetch_depth};
  }
  std::string text() const {
    return (reshard == ReshardAfterForward::to_group ? message("fsdp2:", group) : std::string(name)) + numbers();
  }
  /// What stands behind the name in text(): the values that are not the usual ones.
  std::string numbers() const {
    return std::string(reduce == ReduceGradients::last_micro_batch ? ":deferred" : "") +
           detail::number_text("prefetch", prefetch_depth, 1);
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

/// ZeRO stage 3: as FSDP2, with each unit's tensors as one range cut into equal parts. Tensors up to the threshold are
/// treated as in stage 2. Source: DeepSpeed's param_persistence_threshold and max_live_parameters.
struct Zero3 {
  static constexpr std::string_view name = "zero3";
  using AtRest = buffer::Shard;
  using Layout = buffer::Flat;
  int prefetch_depth = 1;
  std::int64_t persistence_threshold = 0;  ///< elements of a tensor
  std::int64_t live_bound = 0;             ///< elements gathered at a time, persistent and tied ones apart; 0: no bound

  constexpr sharding::Rules rules() const {
    return {.facts = {.persistence_threshold = persistence_threshold},
            .hold = sharding::Hold::use,
            .reduce_every_micro_batch = true,
            .prefetch_depth = prefetch_depth,
            .live_bound = live_bound};
  }
  std::string text() const { return std::string(name) + numbers(); }
  /// What stands behind the name in text(): the values that are not the usual ones.
  std::string numbers() const {
    return detail::number_text("prefetch", prefetch_depth, 1) + detail::number_text("persist", persistence_threshold) +
           detail::number_text("live", live_bound);
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

/// The layout policy of a strategy: what `layout()` gives, or its type's default value.
template <class S>
typename S::Layout layout_of(const S& strategy) {
  if constexpr (requires { strategy.layout(); })
    return strategy.layout();
  else
    return {};
}

namespace detail {
inline constexpr std::string_view hybrid_name = "hybrid:K", full_name = ":full", colon = ":", no_name = "";
inline constexpr std::string_view layout_name = ":layout=";

/// The inner strategy is named where it is not FullyShard<>.
template <class Inner, bool full, class Usual = FullyShard<>>
using HybridName = std::conditional_t<std::is_same_v<Inner, Usual>, Joined<hybrid_name, full ? full_name : no_name>,
                                      Joined<hybrid_name, full ? full_name : no_name, colon, Inner::name>>;

/// The layout is named where it is not the strategy's own.
template <class Strategy, class L>
using LayoutName = std::conditional_t<std::is_same_v<typename Strategy::Layout, L>, Joined<Strategy::name>,
                                      Joined<Strategy::name, layout_name, L::name>>;
}  // namespace detail

/// What HybridShard does with the optimizer's part over the mesh's outer axis.
enum class OptimizerAcross : std::uint8_t { replicated, sharded };

/// Inner's strategy over groups of consecutive ranks, each of which holds a whole model (HSDP): gradients are reduced
/// inside a group as Inner does, and between groups once a step. With the optimizer sharded between groups too (HFSDP)
/// that is a reduce-scatter, and the stepped weights are gathered between groups at their first use.
template <class Inner, OptimizerAcross optimizer = OptimizerAcross::replicated>
struct HybridShard {
  static_assert(std::is_same_v<typename Inner::AtRest, buffer::Shard>,
                "fsdp: HybridShard replicates what its inner strategy shards; Replicated shards nothing: use it alone, "
                "or put FullyShard, Zero1, Zero2 or Zero3 inside");
  static constexpr std::string_view name = detail::HybridName<Inner, optimizer == OptimizerAcross::sharded>::text;
  static constexpr int mesh_axes = 2;
  using AtRest = buffer::Shard;
  using Across = std::conditional_t<optimizer == OptimizerAcross::replicated, buffer::Replicate, buffer::Shard>;
  using Layout = typename Inner::Layout;
  int group = 1;  ///< ranks that hold a model together
  Inner inner{};

  Layout layout() const { return layout_of(inner); }
  /// Such as "hybrid:2", "hybrid:2:full:zero3"; an inner fsdp2 is not named.
  std::string text() const {
    const std::string held = policy_text(inner);
    const std::string_view usual = FullyShard<>::name;
    const bool unnamed = held.starts_with(usual) && !held.starts_with(FullyShard<ReshardAfterForward::no>::name);
    return message("hybrid:", group, optimizer == OptimizerAcross::sharded ? ":full" : "",
                   unnamed ? held.substr(usual.size()) : ":" + held);
  }
  int ranks_per_group() const { return group; }
  constexpr sharding::Facts facts() const {
    sharding::Facts facts = sharding::facts_of(inner);
    facts.across = optimizer == OptimizerAcross::replicated ? sharding::Across::all_reduce : sharding::Across::shard;
    return facts;
  }
  constexpr sharding::Rules rules() const requires sharding::GivesRules<Inner> {
    sharding::Rules rules = inner.rules();
    rules.facts = facts();
    return rules;
  }
  /// The inner strategy's own list, which finds in the problem what crosses the outer axis.
  sharding::Schedule schedule(const sharding::Problem& problem) const requires sharding::GivesSchedule<Inner> {
    return inner.schedule(problem);
  }
};

/// A strategy whose main weights and optimizer state live in the device's offload space (device/offload.hpp); gradients
/// go there and stepped weights come back in pieces. Source: ZeRO-Offload (Ren et al. 2021).
template <class Strategy>
struct Offload : Strategy {
  static constexpr bool offloads_optimizer = true;
  std::string text() const { return policy_text(static_cast<const Strategy&>(*this)) + ":offload=optimizer"; }
};

/// A strategy with another layout, and that layout's numbers.
template <class Strategy, buffer::LayoutPolicy L>
struct WithLayout : Strategy {
  static constexpr std::string_view name = detail::LayoutName<Strategy, L>::text;
  using Layout = L;
  L policy{};

  L layout() const { return policy; }
  std::string text() const {
    return policy_text(static_cast<const Strategy&>(*this)) + ":layout=" + policy_text(policy);
  }
};

/// A sharding strategy: the placement at rest of weights, gradients and optimizer state, a layout, and the rules from
/// which a step's schedule follows, or a schedule of its own.
template <class S>
concept ShardingStrategy = std::copyable<S> && buffer::Placement<typename S::AtRest> &&
    buffer::LayoutPolicy<typename S::Layout> && requires(const S strategy) {
  requires sharding::GivesRules<S> ||(sharding::GivesSchedule<S> && sharding::GivesFacts<S>);
};

/// Axes of the mesh that a strategy works on: 1 unless it says otherwise.
template <class S>
inline constexpr int mesh_axes_of = 1;
template <class S>
requires requires { S::mesh_axes; }
inline constexpr int mesh_axes_of<S> = S::mesh_axes;

namespace detail {
template <class S>
struct AcrossOf {
  using Type = buffer::Replicate;
};
template <class S>
requires requires { typename S::Across; }
struct AcrossOf<S> {
  using Type = typename S::Across;
};
}  // namespace detail

/// Placement, over the mesh's outer axis, of what the optimizer steps: Replicate unless the strategy says otherwise.
template <class S>
using OptimizerPlacement = typename detail::AcrossOf<S>::Type;

/// Whether every tensor that a rank steps lies whole on it: what optimizers of whole matrices need.
template <class S>
inline constexpr bool tensors_whole = std::is_same_v<typename S::AtRest, buffer::Replicate> ||
                                      (buffer::keeps_tensors_whole<typename S::Layout> &&
                                       std::is_same_v<OptimizerPlacement<S>, buffer::Replicate>);

/// Whether main weights and optimizer state live in host memory.
template <class S>
inline constexpr bool offloads_optimizer_of = false;
template <class S>
requires requires { S::offloads_optimizer; }
inline constexpr bool offloads_optimizer_of<S> = S::offloads_optimizer;

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
      requires { requires buffer::LayoutPolicy<typename S::Layout>; },
      "fsdp: a sharding strategy's Layout is no layout policy; it needs a name and std::vector<Layout> build(groups, "
      "parts) const, which lays out all groups of a model; see fsdp/buffer/layout.hpp");
  static_assert(sharding::GivesRules<S> || sharding::GivesSchedule<S>,
                "fsdp: a sharding strategy has neither fsdp::sharding::Rules rules() const, from which a schedule "
                "follows, nor a fsdp::sharding::Schedule schedule(const fsdp::sharding::Problem&) const of its own; "
                "add one of them, see fsdp/sharding/strategies.hpp");
  static_assert(!sharding::GivesSchedule<S> || sharding::GivesRules<S> || sharding::GivesFacts<S>,
                "fsdp: a sharding strategy that brings its own schedule lacks fsdp::sharding::Facts facts() const, "
                "what crosses axes, is kept after forward or persists; add it, 'return {};' where nothing does");
  static_assert(
      mesh_axes_of<S> == 1 || requires(const S strategy) { strategy.ranks_per_group(); },
      "fsdp: a sharding strategy on a mesh of two axes lacks int ranks_per_group() const, the ranks of its inner axis");
  return ShardingStrategy<S>;
}

}  // namespace fsdp
