// SPDX-License-Identifier: Apache-2.0
/// @file
/// The stack of a stack's dry runs: a device without storage, a simulated communicator, and the strategy as a value, so
/// that stacks which differ in strategy, layout, communicator and tiling share it.
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

/// `pieces`, `Sequence`: what the Meta instance of a model can do; at least what the stack can.
template <class StackT, bool pieces = may_have_pieces<typename StackT::Sharding>,
          class Sequence = typename StackT::Sequence>
using MetaStack = Stack<
    Described<OptimizerPlacement<typename StackT::Sharding>, offloads_optimizer_of<typename StackT::Sharding>, pieces>,
    comm::Simulated<device::MetaFor<typename StackT::Device>>, typename StackT::Precision, tiling::Untiled, Sequence>;

/// The MetaStack of a ShardedModule without a model. Its code is the same with pieces and with shared sequences.
template <class StackT>
using MetaModuleStack = MetaStack<StackT, false, WholeSequences>;

namespace detail {

/// Of stacks whose optimizer state is neither sharded across groups nor in host memory, and that have no pieces and
/// whole sequences: those of which the library has more than a Llama's dry runs.
using PlainSharding = Described<buffer::Replicate, false, false>;
template <class Target, class Precision>
using PlainMetaStack =
    Stack<PlainSharding, comm::Simulated<device::MetaOf<Target>>, Precision, tiling::Untiled, WholeSequences>;

}  // namespace detail

/// Returns a strategy as its MetaStack takes it. It refers to `strategy`, which must outlive it.
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
