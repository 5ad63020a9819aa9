// SPDX-License-Identifier: Apache-2.0
/// @file
/// The stack for dry runs of a stack: a device without storage, a simulated communicator, and a type-erased strategy,
/// so that stacks that differ only in strategy, layout, communicator or tiling share it.
#pragma once

#include <type_traits>

#include <tessera/comm/simulated.hpp>
#include <tessera/fsdp/buffer/placement.hpp>
#include <tessera/fsdp/device/meta.hpp>
#include <tessera/fsdp/sharding/described.hpp>
#include <tessera/fsdp/sharding/sequence.hpp>
#include <tessera/fsdp/sharding/strategies.hpp>

namespace fsdp {

namespace tiling {
struct Untiled;  // tessera/tiling/policies.hpp
}  // namespace tiling
template <class Sharding, class Comm, class Precision, class Tiling, class Sequence>
struct Stack;  // tessera/fsdp/module/stack.hpp

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

/// Returns a strategy in the form that its MetaStack takes. The result refers to `strategy`, which must outlive it.
/// @{
template <class StackT, class Meta = MetaStack<StackT>>
typename Meta::Sharding described(const typename StackT::Sharding& strategy) {
  using Strategy = typename StackT::Sharding;
  return {strategy, {.has_pieces = may_have_pieces<Strategy>, .shares_sequences = StackT::Sequence::shards}};
}
template <class StackT, class Meta = MetaStack<StackT>>
typename Meta::Sharding described(const typename StackT::Sharding&& strategy) = delete;
/// @}

}  // namespace fsdp
