// SPDX-License-Identifier: Apache-2.0
/// @file
/// A type-erased strategy: one type for all strategies whose optimizer state has the same placement and memory space.
///
/// Dry runs use it, so that their code is compiled once for each placement. Each call is forwarded to the strategy.
#pragma once

#include <memory>
#include <optional>
#include <span>
#include <string_view>
#include <type_traits>
#include <vector>

#include <tessera/fsdp/buffer/layout.hpp>
#include <tessera/fsdp/buffer/placement.hpp>
#include <tessera/fsdp/sharding/problem.hpp>
#include <tessera/fsdp/sharding/schedule.hpp>
#include <tessera/fsdp/sharding/schedule_of.hpp>
#include <tessera/fsdp/sharding/strategies.hpp>

namespace fsdp {
namespace detail {

/// The functions of a strategy's type, called with a pointer to a strategy.
struct DescribedCalls {
  sharding::Facts (*facts)(const void*);
  sharding::Schedule (*schedule)(const void*, const sharding::Problem&);
  MeshChoice (*mesh)(const void*);
  buffer::detail::Build build;  ///< build function of the strategy's layout policy
  std::string_view layout_name;
};

template <class S>
const S& strategy_at(const void* held) {
  return *static_cast<const S*>(held);
}

template <class S>
inline constexpr DescribedCalls described_calls = {
    .facts = [](const void* held) { return sharding::facts_of(strategy_at<S>(held)); },
    .schedule = [](const void* held,
                   const sharding::Problem& problem) { return sharding::schedule_of(strategy_at<S>(held), problem); },
    .mesh = [](const void* held) { return mesh_of(strategy_at<S>(held)); },
    .build = [](const void* held, std::span<const buffer::TensorGroup> groups,
                int parts) { return layout_of(strategy_at<S>(held)).build(groups, parts); },
    .layout_name = S::Layout::name};

}  // namespace detail

/// Limits of the stack of a described strategy; its Meta instance may support more.
struct StackLimits {
  bool has_pieces = true;        ///< strategies of its type may split steps into pieces
  bool shares_sequences = true;  ///< several ranks may share a sequence
};

/// Refers to a strategy of any type, which must outlive it.
class AnyDescribed {
 public:
  /// The strategy's layout policy.
  struct Layout {
    static constexpr std::string_view name = "described";
    const void* strategy;
    const detail::DescribedCalls* calls;

    std::string_view held_name() const { return calls->layout_name; }
    std::vector<buffer::Layout> build(std::span<const buffer::TensorGroup> groups, int parts) const {
      return calls->build(strategy, groups, parts);
    }
  };

  /// If `strategy` is a Described, the new object refers to the strategy behind it.
  template <class S>
  AnyDescribed(const S& strategy, const StackLimits& limits) : limits_(limits) {
    if constexpr (std::is_base_of_v<AnyDescribed, S>) {
      const AnyDescribed& other = strategy;
      strategy_ = other.strategy_;
      calls_ = other.calls_;
    } else {
      strategy_ = std::addressof(strategy);
      calls_ = &detail::described_calls<S>;
    }
  }

  /// Forwarded to the strategy.
  /// @{
  sharding::Facts facts() const { return calls_->facts(strategy_); }
  sharding::Schedule schedule(const sharding::Problem& problem) const { return calls_->schedule(strategy_, problem); }
  MeshChoice mesh_choice() const { return calls_->mesh(strategy_); }
  int ranks_per_group() const { return mesh_choice().ranks_per_group.value_or(0); }
  Layout layout() const { return {strategy_, calls_}; }
  /// @}
  const StackLimits& stack_limits() const { return limits_; }

 private:
  const void* strategy_;
  const detail::DescribedCalls* calls_;
  StackLimits limits_;
};

/// A strategy whose main weights and optimizer state have the placement AcrossT over the mesh's outer axis, and are in
/// host memory if `offloads`. `pieces`: see fsdp::may_have_pieces.
template <class AcrossT, bool offloads, bool pieces>
struct Described : AnyDescribed {
  using AtRest = buffer::Shard;  ///< default; Facts::whole_at_rest is set if this value replicates
  using Across = AcrossT;
  static constexpr int mesh_axes = 2;
  static constexpr bool axes_by_value = true;
  static constexpr bool offloads_optimizer = offloads;
  static constexpr bool may_have_pieces = pieces;

  template <class S>
  Described(const S& strategy, const StackLimits& limits) : AnyDescribed(strategy, limits) {
    static_assert(std::is_same_v<OptimizerPlacement<S>, Across> && offloads_optimizer_of<S> == offloads);
  }
};

/// Always true here: an optimizer of whole tensors is checked with the strategy's own type
/// (optim::check_whole_tensors).
template <class Across, bool offloads, bool pieces>
inline constexpr bool tensors_whole<Described<Across, offloads, pieces>> = true;

}  // namespace fsdp
