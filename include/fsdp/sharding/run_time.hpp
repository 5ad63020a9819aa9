// SPDX-License-Identifier: Apache-2.0
/// @file
/// Strategies that are chosen at run time: one type for each set of placements. All other differences are run-time
/// values.
///
/// A program that compiles these four types supports every strategy of strategies.hpp with every layout:
/// RunTimeSharded, RunTimeGrouped, RunTimeHybridFull and Replicated.
#pragma once

#include <optional>
#include <string>
#include <string_view>
#include <type_traits>
#include <variant>

#include <tessera/fsdp/buffer/any_layout.hpp>
#include <tessera/fsdp/sharding/strategies.hpp>

namespace fsdp {

/// One of several strategies with the same placements. Rules and numbers are those of the strategy that it holds.
template <class First, class... Rest>
struct OneOf {
  static_assert((std::is_same_v<typename First::AtRest, typename Rest::AtRest> && ...) &&
                    (std::is_same_v<OptimizerPlacement<First>, OptimizerPlacement<Rest>> && ...) &&
                    ((mesh_axes_of<First> == mesh_axes_of<Rest>)&&...) &&
                    ((offloads_optimizer_of<First> == offloads_optimizer_of<Rest>)&&...),
                "fsdp: OneOf holds strategies whose placements and mesh axes are the same, since buffers have them in "
                "their type; give each set of placements a OneOf of its own");
  static constexpr std::string_view name = "run-time";
  static constexpr int mesh_axes = mesh_axes_of<First>;
  static constexpr bool offloads_optimizer = offloads_optimizer_of<First>;
  /// See fsdp::may_have_pieces.
  static constexpr bool may_have_pieces = (fsdp::may_have_pieces<First> || ... || fsdp::may_have_pieces<Rest>);
  using AtRest = typename First::AtRest;
  using Across = OptimizerPlacement<First>;
  using Layout = buffer::AnyLayout;

  std::variant<First, Rest...> strategy{};          ///< the one that is used, with its numbers
  std::optional<buffer::AnyLayout> other_layout{};  ///< replaces the strategy's own layout

  int ranks_per_group() const requires(mesh_axes == 2) {
    return std::visit([](const auto& held) { return held.ranks_per_group(); }, strategy);
  }
  sharding::Rules rules() const {
    return std::visit([](const auto& held) { return held.rules(); }, strategy);
  }
  buffer::AnyLayout layout() const {
    return other_layout ? *other_layout
                        : std::visit([](const auto& held) -> buffer::AnyLayout { return layout_of(held); }, strategy);
  }
  /// Returns the strategy's name, followed by the layout if `other_layout` is set.
  std::string text() const {
    std::string text = std::visit([](const auto& held) { return policy_text(held); }, strategy);
    return other_layout ? text + ":layout=" + policy_text(*other_layout) : text;
  }
};

/// Shards over all ranks.
using RunTimeSharded =
    OneOf<FullyShard<ReshardAfterForward::yes>, FullyShard<ReshardAfterForward::no>, Zero1, Zero2, Zero3,
          Reproducible<FullyShard<ReshardAfterForward::yes>>, Reproducible<FullyShard<ReshardAfterForward::no>>,
          Reproducible<Zero1>, Reproducible<Zero2>, Reproducible<Zero3>>;
/// Strategies on a mesh of two axes, with optimizer state replicated over the outer axis.
using RunTimeGrouped = OneOf<FullyShard<ReshardAfterForward::to_group>, HybridShard<RunTimeSharded>,
                             Reproducible<FullyShard<ReshardAfterForward::to_group>>>;
/// The same with optimizer state sharded over both axes.
using RunTimeHybridFull = HybridShard<RunTimeSharded, OptimizerAcross::sharded>;

}  // namespace fsdp
