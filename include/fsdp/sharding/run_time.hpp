// SPDX-License-Identifier: Apache-2.0
/// @file
/// Strategies that are chosen at run time: one type for each set of placements, whatever differs in values being a
/// value.
///
/// A program that compiles these four types has every strategy of strategies.hpp with every layout:
/// RunTimeSharded, RunTimeGrouped, RunTimeHybridFull and Replicated.
#pragma once

#include <optional>
#include <string>
#include <string_view>
#include <type_traits>
#include <variant>

#include <fsdp/buffer/any_layout.hpp>
#include <fsdp/sharding/strategies.hpp>

namespace fsdp {

/// Holds one of several strategies that place tensors alike. Rules and numbers are those of the strategy that it holds.
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
  using AtRest = typename First::AtRest;
  using Across = OptimizerPlacement<First>;
  using Layout = buffer::AnyLayout;

  std::variant<First, Rest...> strategy{};
  std::optional<buffer::AnyLayout> other_layout{};  ///< instead of the strategy's own

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
  /// The strategy's name, with the layout where that is not its own.
  std::string text() const {
    std::string text = std::visit([](const auto& held) { return policy_text(held); }, strategy);
    return other_layout ? text + ":layout=" + policy_text(*other_layout) : text;
  }
};

/// Shards over all ranks.
using RunTimeSharded =
    OneOf<FullyShard<ReshardAfterForward::yes>, FullyShard<ReshardAfterForward::no>, Zero1, Zero2, Zero3>;
/// On a mesh of two axes, the optimizer replicated over the outer one.
using RunTimeGrouped = OneOf<FullyShard<ReshardAfterForward::to_group>, HybridShard<RunTimeSharded>>;
/// The same with the optimizer sharded over both.
using RunTimeHybridFull = HybridShard<RunTimeSharded, OptimizerAcross::sharded>;

}  // namespace fsdp
