// SPDX-License-Identifier: Apache-2.0
/// @file
/// Compile-time checks of sharding strategies: they report the members that a type is missing, and whether its
/// schedules can run.
///
/// The rules of schedules are in judge.hpp, and their application at compile time is in own_strategy.hpp. A Stack of
/// the library's own strategies needs neither.
#pragma once

#include <concepts>
#include <type_traits>

#include <tessera/fsdp/buffer/layout.hpp>
#include <tessera/fsdp/core/has_member.hpp>
#include <tessera/fsdp/sharding/schedule_of.hpp>
#include <tessera/fsdp/sharding/strategies.hpp>

namespace fsdp {

template <class First, class... Rest>
struct RunTimeStrategy;  // tessera/fsdp/sharding/run_time.hpp
template <class Across, bool offloads, bool pieces>
struct Described;  // tessera/fsdp/sharding/described.hpp

namespace detail {

FSDP_HAS_MEMBER(mesh_axes)
FSDP_HAS_MEMBER(axes_by_value)
FSDP_HAS_MEMBER(Across)
FSDP_HAS_MEMBER(offloads_optimizer)
FSDP_HAS_MEMBER(layout)
FSDP_HAS_MEMBER(keeps_tensors_whole)

/// Checks that the optional members of a strategy and of its Layout have the required types.
template <class S>
consteval bool check_optional_parts() {
  static_assert(
      !has_mesh_axes<S>() || requires { requires S::mesh_axes == 1 || S::mesh_axes == 2; },
      "fsdp: a sharding strategy has a mesh_axes that is no static constexpr int of 1 or 2");
  static_assert(
      !has_axes_by_value<S>() || requires { typename std::bool_constant<S::axes_by_value>; },
      "fsdp: a sharding strategy has an axes_by_value that is no static constexpr bool");
  static_assert(
      !has_Across<S>() || requires { requires buffer::Placement<typename S::Across>; },
      "fsdp: a sharding strategy has an Across that is no placement; take fsdp::buffer::Shard or Replicate");
  static_assert(
      !has_offloads_optimizer<S>() || requires { typename std::bool_constant<S::offloads_optimizer>; },
      "fsdp: a sharding strategy has an offloads_optimizer that is no static constexpr bool");
  static_assert(
      !requires { &S::schedule; } || sharding::GivesSchedule<S>,
      "fsdp: a sharding strategy has a schedule that is no fsdp::sharding::Schedule schedule(const "
      "fsdp::sharding::Problem&) const, so that its rules would be used instead");
  static_assert(
      !requires { &S::facts; } || sharding::GivesFacts<S>,
      "fsdp: a sharding strategy has a facts that is no fsdp::sharding::Facts facts() const, so that its rules' would "
      "be used instead");
  if constexpr (requires { typename S::Layout; }) {
    using Layout = typename S::Layout;
    static_assert(
        !has_layout<S>() ||
            requires(const S strategy) {
              { strategy.layout() } -> std::same_as<Layout>;
            },
        "fsdp: a sharding strategy has a layout that is no Layout layout() const, so that Layout{} would be used "
        "instead");
    static_assert(has_layout<S>() || std::default_initializable<Layout>,
                  "fsdp: a sharding strategy's Layout has no default constructor, so that its numbers are not known; "
                  "give the strategy Layout layout() const");
    static_assert(
        !has_keeps_tensors_whole<Layout>() || requires { typename std::bool_constant<Layout::keeps_tensors_whole>; },
        "fsdp: a layout policy has a keeps_tensors_whole that is no static constexpr bool");
  }
  return true;
}

/// Whether a strategy is the library's own. tests/sharding/own_strategy_test.cpp checks the schedules of these
/// strategies, so programs do not need to.
/// @{
template <class S>
inline constexpr bool judged_by_library = false;
template <ReshardAfterForward reshard>
inline constexpr bool judged_by_library<FullyShard<reshard>> = true;
template <>
inline constexpr bool judged_by_library<Zero1> = true;
template <>
inline constexpr bool judged_by_library<Zero2> = true;
template <>
inline constexpr bool judged_by_library<Zero3> = true;
template <>
inline constexpr bool judged_by_library<Replicated> = true;
template <class Inner, OptimizerAcross optimizer>
inline constexpr bool judged_by_library<HybridShard<Inner, optimizer>> = judged_by_library<Inner>;
template <class S>
inline constexpr bool judged_by_library<Offload<S>> = judged_by_library<S>;
template <class S, buffer::LayoutPolicy L>
inline constexpr bool judged_by_library<WithLayout<S, L>> = judged_by_library<S>;
template <class S>
inline constexpr bool judged_by_library<Reproducible<S>> = judged_by_library<S>;
template <class First, class... Rest>
inline constexpr bool judged_by_library<RunTimeStrategy<First, Rest...>> = judged_by_library<First> &&
                                                                           (judged_by_library<Rest> && ...);
/// The stack of the described strategy has already checked it.
template <class Across, bool offloads, bool pieces>
inline constexpr bool judged_by_library<Described<Across, offloads, pieces>> = true;
/// @}

/// Its `static consteval void check()` checks the schedules of a user-defined strategy. Only own_strategy.hpp defines
/// it, so that stacks of the library's strategies do not compile those checks.
template <class S>
struct OwnStrategy;

/// Rejects a strategy whose schedules with default numbers cannot run. Schedules that cannot be checked at compile time
/// are checked when a module is constructed, and so are other numbers, models and orders.
template <class S>
consteval void check_schedules() {
  if constexpr (!judged_by_library<S>) {
    constexpr bool has_checks = requires { sizeof(OwnStrategy<S>); };
    static_assert(has_checks,
                  "fsdp: the schedules of a sharding strategy that is not the library's are checked while compiling, "
                  "and the header that checks them is not included; add '#include "
                  "<tessera/fsdp/sharding/own_strategy.hpp>' before the first Stack of the strategy");
    if constexpr (has_checks) OwnStrategy<S>::check();
  }
}

}  // namespace detail

/// Reports at compile time which member a type is missing to be a sharding strategy, and rejects a strategy whose
/// schedules cannot run.
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
      "parts) const, which lays out all groups of a model; see tessera/fsdp/buffer/layout.hpp");
  static_assert(sharding::GivesRules<S> || sharding::GivesSchedule<S>,
                "fsdp: a sharding strategy has neither fsdp::sharding::Rules rules() const, from which a schedule "
                "follows, nor a fsdp::sharding::Schedule schedule(const fsdp::sharding::Problem&) const of its own; "
                "add one of them, see tessera/fsdp/sharding/strategies.hpp");
  static_assert(!sharding::GivesSchedule<S> || sharding::GivesRules<S> || sharding::GivesFacts<S>,
                "fsdp: a sharding strategy that brings its own schedule lacks fsdp::sharding::Facts facts() const, "
                "what crosses axes, is kept after forward or persists; add it, 'return {};' where nothing does");
  static_assert(
      mesh_axes_of<S> == 1 ||
          requires(const S strategy) {
            { strategy.ranks_per_group() } -> std::convertible_to<int>;
          },
      "fsdp: a sharding strategy on a mesh of two axes lacks int ranks_per_group() const, the ranks of its inner axis");
  static_assert(std::copyable<S>, "fsdp: a sharding strategy is copied to every rank; make it copyable");
  if constexpr (requires { typename S::AtRest; })
    static_assert(buffer::Placement<typename S::AtRest>,
                  "fsdp: a sharding strategy's AtRest is no placement; take fsdp::buffer::Shard or Replicate");
  constexpr bool good = detail::check_optional_parts<S>() && ShardingStrategy<S>;
  if constexpr (good) detail::check_schedules<S>();
  return good;
}

}  // namespace fsdp
