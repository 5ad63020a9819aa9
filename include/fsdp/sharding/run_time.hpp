// SPDX-License-Identifier: Apache-2.0
/// @file
/// Strategies that are chosen at run time, for example from text: one type for each placement of optimizer state. All
/// other differences are run-time values.
///
/// A program that compiles the two types of AnyStrategy supports every strategy of strategies.hpp with every layout.
#pragma once

#include <algorithm>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <type_traits>
#include <utility>
#include <variant>
#include <vector>

#include <tessera/fsdp/buffer/layout_policies.hpp>
#include <tessera/fsdp/core/error.hpp>
#include <tessera/fsdp/core/policy_text.hpp>
#include <tessera/fsdp/sharding/per_unit.hpp>
#include <tessera/fsdp/sharding/strategies.hpp>
#include <tessera/fsdp/sharding/strategy.hpp>

namespace fsdp {

/// One of several strategies whose optimizer state has the same placement, and others of them for some tensors. It
/// takes its rules, numbers, mesh axes, and whether weights are whole at rest, from the strategies that it contains.
template <class First, class... Rest>
struct RunTimeStrategy {
  static_assert(
      (std::is_same_v<OptimizerPlacement<First>, OptimizerPlacement<Rest>> && ...) &&
          ((offloads_optimizer_of<First> == offloads_optimizer_of<Rest>)&&...),
      "fsdp: RunTimeStrategy holds strategies whose optimizer state has the same placement across groups and "
      "the same memory, since buffers have them in their type; give each of these a RunTimeStrategy of its own");
  static constexpr int mesh_axes = std::max({mesh_axes_of<First>, mesh_axes_of<Rest>...});
  /// Whether some of the strategies form groups of ranks, and others do not.
  static constexpr bool axes_by_value = fsdp::axes_by_value<First> || (fsdp::axes_by_value<Rest> || ...) ||
                                        !((mesh_axes_of<Rest> == mesh_axes_of<First>)&&...);
  static constexpr bool offloads_optimizer = offloads_optimizer_of<First>;
  /// See fsdp::may_have_pieces.
  static constexpr bool may_have_pieces = (fsdp::may_have_pieces<First> || ... || fsdp::may_have_pieces<Rest>);
  using AtRest = std::conditional_t<(std::is_same_v<typename Rest::AtRest, typename First::AtRest> && ...),
                                    typename First::AtRest, buffer::Shard>;
  using Across = OptimizerPlacement<First>;
  using Layout = buffer::AnyLayout;

  std::variant<First, Rest...> strategy{};          ///< the strategy in use, with its numbers
  std::optional<buffer::AnyLayout> other_layout{};  ///< replaces the strategy's own layout
  /// Other strategies for the tensors that match a pattern, as in PerUnit: part_of(on(pattern, strategy)). The numbers
  /// of the whole module are those of `strategy`.
  std::vector<StrategyPart> units{};

  /// The number of ranks per group, which all strategies with groups share; 0 if none has.
  int ranks_per_group() const requires(mesh_axes == 2) {
    return detail::ranks_per_group_of(units, own_ranks_per_group());
  }
  bool per_unit() const { return !units.empty() || nested(); }  ///< whether some tensors have another strategy
  /// See PerUnit::parts. Throws InputError if `strategy` has parts, as one in a HybridShard may.
  std::vector<StrategyPart> parts() const;
  sharding::Facts facts() const;
  sharding::Rules rules() const;
  buffer::AnyLayout layout() const;
  std::string text() const;
  /// Lists the parts of the strategy in use, the layout if `other_layout` is set, and the other strategies as
  /// "PATTERN=(STRATEGY)".
  void visit(PolicyParts& parts);

 private:
  bool nested() const {
    return std::visit(
        []<class S>(const S& held) {
          if constexpr (sharding::MayHaveParts<S>) return held.per_unit();
          return false;
        },
        strategy);
  }
  int own_ranks_per_group() const {
    return std::visit(
        []<class S>(const S& held) {
          if constexpr (mesh_axes_of<S> == 2) return held.ranks_per_group();
          return 0;
        },
        strategy);
  }
};

template <class First, class... Rest>
sharding::Facts RunTimeStrategy<First, Rest...>::facts() const {
  sharding::Facts facts = std::visit([](const auto& held) { return sharding::facts_of(held); }, strategy);
  facts.whole_at_rest = facts.whole_at_rest && detail::all_whole(units);
  return facts;
}
template <class First, class... Rest>
std::vector<StrategyPart> RunTimeStrategy<First, Rest...>::parts() const {
  require<InputError>(!nested(),
                      "sharding: the strategy that a RunTimeStrategy holds has parts; list them in the units ",
                      "of the RunTimeStrategy");
  if (units.empty()) return {only_part_of(*this)};
  RunTimeStrategy own = *this;
  own.units.clear();
  return detail::parts_per_unit(units, part_of(own), std::is_same_v<Across, buffer::Shard>);
}
template <class First, class... Rest>
sharding::Rules RunTimeStrategy<First, Rest...>::rules() const {
  return std::visit([](const auto& held) { return held.rules(); }, strategy);
}
template <class First, class... Rest>
buffer::AnyLayout RunTimeStrategy<First, Rest...>::layout() const {
  return other_layout ? *other_layout
                      : std::visit([](const auto& held) -> buffer::AnyLayout { return layout_of(held); }, strategy);
}
template <class First, class... Rest>
std::string RunTimeStrategy<First, Rest...>::text() const {
  return listed_text(*this);
}
template <class First, class... Rest>
void RunTimeStrategy<First, Rest...>::visit(PolicyParts& parts) {
  parts.part(strategy);
  if (other_layout) parts.suffix("layout", policy_text(*other_layout));
  for (const StrategyPart& part : units) parts.suffix(part.pattern.text(), message("(", part.name, ")"));
}

/// A RunTimeStrategy of each of the strategies, both plain and Reproducible.
template <class... S>
using RunTimeStrategyInPieces = RunTimeStrategy<S..., Reproducible<S>...>;

/// Shards over all ranks.
using RunTimeSharded = RunTimeStrategyInPieces<FullyShard<ReshardAfterForward::yes>,
                                               FullyShard<ReshardAfterForward::no>, Zero1, Zero2, Zero3>;
/// Strategies on a mesh of two axes, with optimizer state replicated over the outer axis.
using RunTimeGrouped = RunTimeStrategy<FullyShard<ReshardAfterForward::to_group>, HybridShard<RunTimeSharded>,
                                       Reproducible<FullyShard<ReshardAfterForward::to_group>>>;
/// HSDP strategies with optimizer state sharded over both axes.
using RunTimeHybridFull = HybridShard<RunTimeSharded, OptimizerAcross::sharded>;
/// Every strategy whose optimizer state is not sharded across groups.
using RunTimeAny =
    RunTimeStrategy<FullyShard<ReshardAfterForward::yes>, FullyShard<ReshardAfterForward::no>, Zero1, Zero2, Zero3,
                    Reproducible<FullyShard<ReshardAfterForward::yes>>,
                    Reproducible<FullyShard<ReshardAfterForward::no>>, Reproducible<Zero1>, Reproducible<Zero2>,
                    Reproducible<Zero3>, FullyShard<ReshardAfterForward::to_group>, HybridShard<RunTimeSharded>,
                    Reproducible<FullyShard<ReshardAfterForward::to_group>>, Replicated>;

/// Instantiates the members of a RunTimeStrategy. Those of the lists above are compiled into the library, and the
/// StrategyCalls of the types that programs use.
#define FSDP_RUN_TIME_STRATEGY(EXTERN, S)                     \
  EXTERN template sharding::Facts S::facts() const;           \
  EXTERN template std::vector<StrategyPart> S::parts() const; \
  EXTERN template sharding::Rules S::rules() const;           \
  EXTERN template buffer::AnyLayout S::layout() const;        \
  EXTERN template std::string S::text() const;                \
  EXTERN template void S::visit(PolicyParts&)
FSDP_RUN_TIME_STRATEGY(extern, RunTimeSharded);
FSDP_RUN_TIME_STRATEGY(extern, RunTimeGrouped);
FSDP_RUN_TIME_STRATEGY(extern, RunTimeAny);
/// @cond
extern template StrategyCalls calls_of(const RunTimeAny&);
extern template StrategyCalls calls_of(const RunTimeHybridFull&);
extern template StrategyCalls calls_of(const Offload<RunTimeAny>&);
extern template StrategyCalls calls_of(const Offload<RunTimeHybridFull>&);
/// @endcond

/// Any strategy of this library.
using AnyStrategy = std::variant<RunTimeAny, RunTimeHybridFull>;

namespace detail {

template <class... S>
inline constexpr bool checked_by_library<RunTimeStrategy<S...>> = (checked_by_library<S> && ...);

}  // namespace detail

/// Calls `f` with a value of every kind that a strategy type, or a std::variant of such types, represents.
template <class S, class F>
void each_kind(const F& f) {
  S strategy{};
  const auto each_in = [&]<class... T>(std::variant<T...>& held) {
    const auto set = [&](const auto& one) { held = one, f(strategy); };
    (each_kind<T>(set), ...);
  };
  if constexpr (requires { strategy.index(); }) {
    each_in(strategy);
  } else if constexpr (requires { strategy.strategy; }) {
    each_in(strategy.strategy);
  } else if constexpr (requires { strategy.inner; }) {
    each_kind<decltype(strategy.inner)>([&](const auto& inner) {
      strategy.inner = inner;
      // With pieces, HSDP is not supported: a group of ranks adds up its gradients first.
      if (sharding::facts_of(inner).pieces == 0) f(strategy);
    });
  } else {
    f(strategy);
  }
}

/// Parses a strategy from text; returns nullopt if the type represents no strategy of that name. Throws InputError if a
/// number is too large; `what` describes the source of the text in the message.
template <class S>
std::optional<S> read_strategy(std::string_view text, std::string_view what = "the strategy ") {
  std::optional<S> found;
  each_kind<S>([&](S strategy) {
    PolicyParts parts;
    parts.part(strategy);
    if (parts.read(text, what)) found = strategy;
  });
  return found;
}

}  // namespace fsdp
