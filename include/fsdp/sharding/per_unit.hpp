// SPDX-License-Identifier: Apache-2.0
/// @file
/// A strategy for each unit or tensor:
///
///     PerUnit{on("*experts*", Zero1{}), on("embed_tokens|lm_head", Replicated{}), otherwise(FullyShard<>{})}
///
/// There is still one schedule, one gradient norm, one plan and one checkpoint. Patterns are resolved to one strategy
/// per group of tensors before a schedule is made; tensors of a unit that a pattern selects form a separate group.
/// Source: the separate wrapping of submodules in FSDP2, and the strategy of experts in Megatron-FSDP.
#pragma once

#include <tessera/fsdp/core/language.hpp>  // before all others

#include <algorithm>
#include <array>
#include <cstdint>
#include <optional>
#include <string>
#include <tuple>
#include <type_traits>
#include <utility>
#include <vector>

#include <tessera/fsdp/buffer/layout_policies.hpp>
#include <tessera/fsdp/core/tensor_pattern.hpp>
#include <tessera/fsdp/sharding/problem.hpp>
#include <tessera/fsdp/sharding/strategy.hpp>

namespace fsdp {
namespace detail {

/// Returns the parts of a strategy per unit: `units`, and `rest` for all tensors that no pattern of theirs selects.
/// Parts with the same strategy get the same StrategyPart::same_as. Throws InputError for a part in `units` that sets a
/// number of the whole module: prefetch depth, live bound, budget or pieces; these are taken from `rest`. Throws it too
/// for a part whose StrategyPart::shards_across is another than `shards_across`, unless that is nullopt.
std::vector<StrategyPart> parts_per_unit(std::vector<StrategyPart> units, StrategyPart rest,
                                         std::optional<bool> shards_across);
/// Returns the number of ranks of the groups that all parts with groups form; `ranks`: that of the rest, or 0. Throws
/// InputError if parts form different groups.
int ranks_per_group_of(const std::vector<StrategyPart>& units, int ranks);
/// Whether every rank holds all weights of all parts between steps.
bool all_whole(const std::vector<StrategyPart>& units);
/// Returns the text of a strategy per unit.
std::string text_of_parts(const std::vector<StrategyPart>& units, const StrategyPart& rest);

}  // namespace detail

/// One strategy for the tensors of each pattern, and the last for all others. A tensor may match one pattern. Members
/// other than the parts apply to the whole module, and are refused inside a part. Offload and Reproducible wrap it.
template <class... S>
struct PerUnit {
  static_assert(sizeof...(S) > 0,
                "fsdp: PerUnit has no strategy; give it on(pattern, strategy) and otherwise(strategy)");
  static_assert(
      (ShardingStrategy<S> && ...),
      "fsdp: a part of PerUnit is no sharding strategy; give on(pattern, strategy) and otherwise(strategy) one "
      "such as Zero1{}, and element types by PrecisionBy");
  static_assert(!(sharding::MayHaveParts<S> || ...), "fsdp: a part of PerUnit has parts too; list them in one PerUnit");
  static_assert(!(sharding::GivesSchedule<S> || ...),
                "fsdp: a part of PerUnit has its own schedule, which does not know the groups of other parts; take a "
                "strategy with rules(), and make the schedule one of the whole module");
  static_assert(!(offloads_optimizer_of<S> || ...),
                "fsdp: a part of PerUnit is an Offload, and optimizer state is in one memory for all parts; write "
                "Offload<PerUnit<...>>");
  static_assert(!(fsdp::may_have_pieces<S> || ...),
                "fsdp: a part of PerUnit is a Reproducible, and a step is cut into pieces as a whole; write "
                "Reproducible<PerUnit<...>>");
  static constexpr int mesh_axes = std::max({mesh_axes_of<S>...});
  static constexpr bool axes_by_value = mesh_axes == 2;  ///< some parts may form groups of ranks
  /// Replicate if all parts replicate, else Shard; and the common placement of optimizer state, or ByGroup.
  /// @{
  using AtRest = std::conditional_t<(std::is_same_v<typename S::AtRest, buffer::Replicate> && ...), buffer::Replicate,
                                    buffer::Shard>;
  using Across = std::conditional_t<
      (std::is_same_v<OptimizerPlacement<S>, buffer::Replicate> && ...), buffer::Replicate,
      std::conditional_t<(std::is_same_v<OptimizerPlacement<S>, buffer::Shard> && ...), buffer::Shard, ByGroup>>;
  /// @}
  using Layout = buffer::PerParameter;  ///< not used: each part has its own

  std::vector<StrategyPart> units = {};  ///< the parts with patterns
  StrategyPart rest = {};                ///< the part with all other tensors
  int prefetch_depth = 1;                ///< number of computations by which a gather is issued before its use
  /// Upper bound for the elements gathered at the same time for single uses; 0: no bound (sharding::Rules).
  std::int64_t live_bound = 0;
  /// Upper bound for the bytes of the slots for gathered weights; 0: no bound. Groups of strategies that release
  /// weights after each use are then held for longer (sharding::Facts).
  std::int64_t budget = 0;

  /// All tensors have the last strategy.
  PerUnit() : PerUnit(std::vector<StrategyPart>{part_of(std::tuple_element_t<sizeof...(S) - 1, std::tuple<S...>>{})}) {}
  /// `parts`: on(pattern, strategy) any number of times, then otherwise(strategy).
  template <class... Parts>
  requires(sizeof...(Parts) == sizeof...(S)) explicit PerUnit(const Parts&... parts)
      : PerUnit(std::vector<StrategyPart>{part_of(parts)...}) {
    static_assert(
        detail::end_with_otherwise<Parts...>(),
        "fsdp: PerUnit ends with the strategy of all other tensors; write PerUnit{on(pattern, strategy), ..., "
        "otherwise(strategy)}");
    static_assert((std::is_same_v<typename detail::Listed<Parts>::type, S> && ...),
                  "fsdp: a strategy in PerUnit{...} has another type than PerUnit<...> lists in its place; leave <...> "
                  "out, so that the type follows from the values");
  }

  /// The rules of the whole module.
  sharding::Rules rules() const {
    return {.facts = {.budget = budget, .whole_at_rest = rest.rules.facts.whole_at_rest && detail::all_whole(units)},
            .prefetch_depth = prefetch_depth,
            .live_bound = live_bound};
  }
  /// The strategy of each part; see StrategyPart. Throws InputError for a part that sets a number of the whole module.
  std::vector<StrategyPart> parts() const {
    return detail::parts_per_unit(
        units, rest,
        std::is_same_v<Across, ByGroup> ? std::nullopt : std::optional(std::is_same_v<Across, buffer::Shard>));
  }
  static constexpr bool per_unit() { return true; }  ///< see sharding::MayHaveParts
  int ranks_per_group() const requires(mesh_axes == 2) {
    return detail::ranks_per_group_of(units, rest.mesh.ranks_per_group.value_or(0));
  }
  std::string text() const { return detail::text_of_parts(units, rest); }

  /// The rules of the strategies with default numbers, for the checks of schedules.
  static constexpr std::array<sharding::Rules, sizeof...(S)> default_rules() { return {sharding::rules_of(S{})...}; }

 private:
  /// The numbers of the whole module are those of the last part, unless they are set.
  explicit PerUnit(std::vector<StrategyPart> parts)
      : units(std::move(parts)),
        rest(units.back()),
        prefetch_depth(rest.rules.prefetch_depth),
        live_bound(rest.rules.live_bound),
        budget(rest.rules.facts.budget) {
    units.pop_back();
  }
};

/// @cond
template <class... Parts>
PerUnit(const Parts&...) -> PerUnit<typename detail::Listed<Parts>::type...>;
/// @endcond

/// Returns the part of a PerUnit.
/// @{
template <class S>
StrategyPart part_of(const On<S>& one) {
  StrategyPart part = part_of(one.value);
  part.pattern = one.pattern;
  return part;
}
template <class S>
StrategyPart part_of(const Otherwise<S>& one) {
  return part_of(one.value);
}
/// @}

template <class... S>
inline constexpr bool tensors_whole<PerUnit<S...>> = (tensors_whole<S> && ...);

namespace detail {
template <class... S>
inline constexpr bool checked_by_library<PerUnit<S...>> = (checked_by_library<S> && ...);
}  // namespace detail

}  // namespace fsdp
