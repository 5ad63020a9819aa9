// SPDX-License-Identifier: Apache-2.0
/// @file
/// The stack for dry runs of a stack: a device without storage, a simulated communicator, and a strategy as a value, so
/// that stacks that differ only in strategy, layout, communicator or tiling share it.
#pragma once

#include <type_traits>
#include <utility>

#include <tessera/comm/simulated.hpp>
#include <tessera/fsdp/buffer/layout.hpp>
#include <tessera/fsdp/device/meta.hpp>
#include <tessera/fsdp/sharding/problem.hpp>
#include <tessera/fsdp/sharding/schedule.hpp>
#include <tessera/fsdp/sharding/sequence.hpp>
#include <tessera/fsdp/sharding/strategy.hpp>

namespace fsdp {

namespace tiling {
struct Untiled;  // tessera/tiling/policies.hpp
}  // namespace tiling
template <class Sharding, class Comm, class Precision, class Tiling, class Sequence>
struct Stack;  // tessera/fsdp/module/stack.hpp

/// Any strategy whose main weights and optimizer state have the placement AcrossT over the mesh's outer axis, and are
/// in host memory if `offloads`. `pieces`: see fsdp::may_have_pieces.
template <class AcrossT, bool offloads, bool pieces>
struct Described {
  using AtRest = buffer::Shard;  ///< default; Facts::whole_at_rest is set if this value replicates
  using Across = AcrossT;
  using Layout = buffer::Flat;  ///< not used: the strategy's own layout is in its calls
  static constexpr int mesh_axes = 2;
  static constexpr bool axes_by_value = true;
  static constexpr bool offloads_optimizer = offloads;
  static constexpr bool may_have_pieces = pieces;

  StrategyCalls calls;
  bool has_pieces = true;  ///< strategies of its type may split steps into pieces; its Meta instance may support more

  sharding::Facts facts() const { return calls.facts; }
  sharding::Schedule schedule(const sharding::Problem& problem) const { return calls.schedule_of(problem); }
  int ranks_per_group() const { return calls.mesh.ranks_per_group.value_or(0); }
};

/// Always true here: an optimizer of whole tensors is checked with the strategy's own type
/// (optim::check_whole_tensors).
template <class Across, bool offloads, bool pieces>
inline constexpr bool tensors_whole<Described<Across, offloads, pieces>> = true;

namespace detail {
/// The stack of the described strategy has already checked it.
template <class Across, bool offloads, bool pieces>
inline constexpr bool judged_by_library<Described<Across, offloads, pieces>> = true;
}  // namespace detail

/// `pieces` and `Sequence` are the features that the Meta instance of a model supports; at least the features of the
/// stack.
template <class StackT, bool pieces = may_have_pieces<typename StackT::Sharding>,
          class Sequence = typename StackT::Sequence>
using MetaStack = Stack<
    Described<OptimizerPlacement<typename StackT::Sharding>, offloads_optimizer_of<typename StackT::Sharding>, pieces>,
    comm::Simulated<device::MetaFor<typename StackT::Device>>, typename StackT::Precision, tiling::Untiled, Sequence>;

/// The MetaStack of a ShardedModule without a model, whose code does not depend on pieces or shared sequences.
template <class StackT>
using MetaModuleStack = MetaStack<StackT, false, WholeSequences>;

namespace detail {

/// The MetaStack of stacks whose optimizer state is neither sharded across groups nor in host memory, without pieces
/// and with whole sequences. Only for these does the library contain compiled code beyond the dry runs of a Llama.
using PlainSharding = Described<buffer::Replicate, false, false>;
template <class Target, class Precision>
using PlainMetaStack =
    Stack<PlainSharding, comm::Simulated<device::MetaOf<Target>>, Precision, tiling::Untiled, WholeSequences>;

}  // namespace detail

/// Returns a strategy in the form that its MetaStack takes.
template <class StackT, class Meta = MetaStack<StackT>>
typename Meta::Sharding described(const typename StackT::Sharding& strategy) {
  using Strategy = typename StackT::Sharding;
  static_assert(std::is_same_v<OptimizerPlacement<Strategy>, typename Meta::Sharding::Across> &&
                offloads_optimizer_of<Strategy> == Meta::Sharding::offloads_optimizer);
  StrategyCalls calls = calls_of(strategy);
  calls.shares_sequences = StackT::Sequence::shards;
  return {std::move(calls), may_have_pieces<Strategy>};
}

}  // namespace fsdp
