// SPDX-License-Identifier: Apache-2.0
/// @file
/// What a sharding strategy is: its concept, the defaults of what it may leave out, its schedule, and compile-time
/// checks that report the members that a type is missing, and whether its schedules can run.
///
/// The rules of schedules are in check_schedule.hpp, and their application at compile time is in own_strategy.hpp. A
/// Stack of the library's own strategies needs neither.
#pragma once

#include <concepts>
#include <cstddef>
#include <functional>
#include <optional>
#include <span>
#include <string>
#include <type_traits>
#include <vector>

#include <tessera/fsdp/buffer/layout.hpp>
#include <tessera/fsdp/core/error.hpp>
#include <tessera/fsdp/core/has_member.hpp>
#include <tessera/fsdp/core/lists.hpp>
#include <tessera/fsdp/core/policy_text.hpp>
#include <tessera/fsdp/core/tensor_pattern.hpp>
#include <tessera/fsdp/sharding/problem.hpp>
#include <tessera/fsdp/sharding/schedule.hpp>

namespace fsdp::sharding {

/// Returns `make_schedule(rules, problem)` (scheduler.hpp); compiled in the library.
Schedule schedule_from(const Rules& rules, const Problem& problem);
/// Returns `make_schedule_of_groups(rules, problem)`; compiled in the library.
Schedule schedule_of_groups(const Rules& rules, const Problem& problem);

/// A strategy that provides its own schedule.
template <class S>
concept GivesSchedule = requires(const S strategy, const Problem& problem) {
  { strategy.schedule(problem) } -> std::same_as<Schedule>;
};

/// A strategy whose schedule `make_schedule` derives.
template <class S>
concept GivesRules = requires(const S strategy) {
  { strategy.rules() } -> std::same_as<Rules>;
};

/// A strategy that declares its memory needs separately from rules.
template <class S>
concept GivesFacts = requires(const S strategy) {
  { strategy.facts() } -> std::same_as<Facts>;
};

/// Whether a strategy may consist of parts with different rules: PerUnit, and strategies chosen at run time.
template <class S>
concept MayHaveParts = requires(const S strategy) {
  { strategy.per_unit() } -> std::same_as<bool>;
};

/// Returns the strategy's schedule for a problem. A strategy with both a schedule and rules uses its schedule.
template <class S>
Schedule schedule_of(const S& strategy, const Problem& problem) {
  if constexpr (GivesSchedule<S>) {
    return strategy.schedule(problem);
  } else {
    if constexpr (MayHaveParts<S>)
      if (strategy.per_unit()) return schedule_of_groups(strategy.rules(), problem);
    return schedule_from(strategy.rules(), problem);
  }
}

/// Returns the facts of a strategy: its own, or the facts in its rules. Sets whole_at_rest if its type replicates at
/// rest.
template <class S>
constexpr Facts facts_of(const S& strategy) {
  Facts facts;
  if constexpr (GivesFacts<S>)
    facts = strategy.facts();
  else
    facts = strategy.rules().facts;
  if constexpr (std::is_same_v<typename S::AtRest, buffer::Replicate>) facts.whole_at_rest = true;
  return facts;
}

/// Returns the rules of a strategy, with its facts; of a strategy without rules, the default ones.
template <class S>
constexpr Rules rules_of(const S& strategy) {
  Rules rules;
  if constexpr (GivesRules<S>) rules = strategy.rules();
  rules.facts = facts_of(strategy);
  return rules;
}

}  // namespace fsdp::sharding

namespace fsdp {

/// Returns a strategy's layout policy: `layout()` if the strategy has it, else the default value of its Layout.
template <class S>
typename S::Layout layout_of(const S& strategy) {
  if constexpr (requires { strategy.layout(); })
    return strategy.layout();
  else
    return {};
}

/// A sharding strategy: the placement at rest of weights, gradients and optimizer state, a layout, and either rules
/// from which a step's schedule is derived or its own schedule.
template <class S>
concept ShardingStrategy = std::copyable<S> && buffer::Placement<typename S::AtRest> &&
    buffer::LayoutPolicy<typename S::Layout> && requires(const S strategy) {
  requires sharding::GivesRules<S> ||(sharding::GivesSchedule<S> && sharding::GivesFacts<S>);
};

/// Whether values of a strategy type may split steps into pieces: the type is a Reproducible, or contains one. Only
/// such stacks compile the code for pieces.
template <class S>
inline constexpr bool may_have_pieces = requires(const S strategy) {
  strategy.pieces;
};
template <class S>
requires requires { S::may_have_pieces; }
inline constexpr bool may_have_pieces<S> = S::may_have_pieces;

/// Number of axes of the mesh that a strategy works on: 1 by default.
template <class S>
inline constexpr int mesh_axes_of = 1;
template <class S>
requires requires { S::mesh_axes; }
inline constexpr int mesh_axes_of<S> = S::mesh_axes;

/// Whether the number of mesh axes depends on the value of a strategy type: ranks_per_group() is then 0 for one axis.
template <class S>
inline constexpr bool axes_by_value = false;
template <class S>
requires requires { S::axes_by_value; }
inline constexpr bool axes_by_value<S> = S::axes_by_value;

/// The axes of the mesh that a value of a strategy type works on.
struct MeshChoice {
  std::optional<int> ranks_per_group = {};  ///< number of ranks of the inner axis; nullopt if there is one axis
  bool by_value = false;                    ///< other values of its type work on another number of axes
  friend bool operator==(const MeshChoice&, const MeshChoice&) = default;
};

/// Returns a strategy's choice of axes.
template <class S>
MeshChoice mesh_of(const S& strategy) {
  MeshChoice mesh{.by_value = axes_by_value<S>};
  if constexpr (mesh_axes_of<S> == 2)
    if (const int ranks = strategy.ranks_per_group(); ranks != 0 || !mesh.by_value) mesh.ranks_per_group = ranks;
  return mesh;
}

namespace detail {
template <class S>
struct AcrossOf : std::type_identity<buffer::Replicate> {};
template <class S>
requires requires { typename S::Across; }
struct AcrossOf<S> : std::type_identity<typename S::Across> {};
}  // namespace detail

/// The Across of a PerUnit whose parts place optimizer state over the outer axis differently.
struct ByGroup {};

/// Placement of main weights and optimizer state over the mesh's outer axis: Replicate by default.
template <class S>
using OptimizerPlacement = typename detail::AcrossOf<S>::type;

/// Whether main weights and optimizer state live in host memory.
template <class S>
inline constexpr bool offloads_optimizer_of = false;
template <class S>
requires requires { S::offloads_optimizer; }
inline constexpr bool offloads_optimizer_of<S> = S::offloads_optimizer;

/// The strategy of some groups of a module, as a value whose type does not depend on the strategy's.
struct StrategyPart {
  TensorPattern pattern = {};  ///< its tensors; ignored in the last part, which has those that no pattern selects
  sharding::Rules rules = {};  ///< see sharding::rules_of
  MeshChoice mesh = {};        ///< see mesh_of
  bool shards_across = false;  ///< whether its OptimizerPlacement is Shard
  bool own_schedule = false;   ///< whether the strategy has its own schedule
  bool offloads = false;       ///< whether main weights and optimizer state are in host memory
  std::size_t same_as = 0;     ///< index of the first part with the same strategy, whose groups include its tensors
  /// Texts of the strategy, and of its layout policy: equal texts are equal policies, and an empty one is not known.
  /// Empty in the only part of a module, so that stacks of one strategy do not compile them.
  /// @{
  std::string name = {}, layout = {};
  /// @}
  /// See buffer::build_layouts.
  std::function<std::vector<buffer::Layout>(std::span<const buffer::TensorGroup>, std::span<const int> parts)>
      build_layouts = {};
};

/// What a module uses of a strategy, as a value whose type does not depend on the strategy's.
struct StrategyCalls {
  sharding::Facts facts = {};  ///< see sharding::facts_of
  /// See sharding::schedule_of.
  std::function<sharding::Schedule(const sharding::Problem&)> schedule_of = {};
  MeshChoice mesh = {};                  ///< see mesh_of
  std::vector<StrategyPart> parts = {};  ///< at least one; several for a PerUnit
  bool shares_sequences = true;          ///< several ranks may share a sequence if the stack's policy does
};

/// Returns a strategy as the only part of a module's strategy.
template <class S>
StrategyPart only_part_of(const S& strategy) {
  return {.rules = sharding::rules_of(strategy),
          .mesh = mesh_of(strategy),
          .shards_across = std::is_same_v<OptimizerPlacement<S>, buffer::Shard>,
          .own_schedule = sharding::GivesSchedule<S>,
          .offloads = offloads_optimizer_of<S>,
          .build_layouts = [layout = layout_of(strategy)](std::span<const buffer::TensorGroup> groups,
                                                          std::span<const int> parts) {
            return buffer::build_layouts(layout, groups, parts);
          }};
}

/// Returns a strategy as one of several parts, the one of all tensors that no pattern selects. Throws InputError if it
/// has parts too.
template <class S>
StrategyPart part_of(const S& strategy) {
  using L = typename S::Layout;
  if constexpr (sharding::MayHaveParts<S>)
    require<InputError>(!strategy.per_unit(),
                        "sharding: a part of a strategy per unit has parts too; list them together");
  StrategyPart part = only_part_of(strategy);
  part.name = policy_text(strategy);
  if constexpr (std::is_empty_v<L> || requires(const L layout) { layout.text(); })
    part.layout = std::string(type_name<L>()) + " " + policy_text(layout_of(strategy));
  return part;
}

/// Returns the StrategyCalls of a strategy, with a copy of it; of a strategy that has them (`calls`), these.
template <class S>
StrategyCalls calls_of(const S& strategy) {
  if constexpr (requires {
                  { strategy.calls } -> std::same_as<const StrategyCalls&>;
                }) {
    return strategy.calls;
  } else {
    StrategyCalls calls{
        .facts = sharding::facts_of(strategy),
        .schedule_of = [=](const sharding::Problem& problem) { return sharding::schedule_of(strategy, problem); },
        .mesh = mesh_of(strategy)};
    if constexpr (sharding::MayHaveParts<S>)
      if (strategy.per_unit()) calls.parts = strategy.parts();
    if (calls.parts.empty()) calls.parts.push_back(only_part_of(strategy));
    return calls;
  }
}

/// Whether every tensor that a rank steps is whole on that rank, as optimizers of whole matrices require.
template <class S>
inline constexpr bool tensors_whole = std::is_same_v<typename S::AtRest, buffer::Replicate> ||
                                      (buffer::keeps_tensors_whole<typename S::Layout> &&
                                       (buffer::keeps_whole_across<typename S::Layout> ||
                                        std::is_same_v<OptimizerPlacement<S>, buffer::Replicate>));

namespace detail {

FSDP_HAS_MEMBER(mesh_axes)
FSDP_HAS_MEMBER(axes_by_value)
FSDP_HAS_MEMBER(Across)
FSDP_HAS_MEMBER(offloads_optimizer)
FSDP_HAS_MEMBER(layout)
FSDP_HAS_MEMBER(keeps_tensors_whole)
FSDP_HAS_MEMBER(keeps_whole_across)

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
      !has_Across<S>() ||
          requires { requires buffer::Placement<typename S::Across> || std::is_same_v<typename S::Across, ByGroup>; },
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
    static_assert(
        !has_keeps_whole_across<Layout>() || requires { typename std::bool_constant<Layout::keeps_whole_across>; },
        "fsdp: a layout policy has a keeps_whole_across that is no static constexpr bool");
  }
  return true;
}

/// Whether a strategy is the library's own. tests/sharding/own_strategy_test.cpp checks the schedules of these
/// strategies, so programs do not need to.
template <class S>
inline constexpr bool checked_by_library = false;

/// Its `static consteval void check()` checks the schedules of a user-defined strategy. Only own_strategy.hpp defines
/// it, so that stacks of the library's strategies do not compile those checks.
template <class S>
struct OwnStrategy;

/// Rejects a strategy whose schedules with default numbers cannot run. Schedules that cannot be checked at compile time
/// are checked when a module is constructed, and so are other numbers, models and orders.
template <class S>
consteval void check_schedules() {
  if constexpr (!checked_by_library<S>) {
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

FSDP_LIST(fsdp::StrategyPart)  // compiled into the library
