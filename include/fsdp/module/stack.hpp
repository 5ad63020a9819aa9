// SPDX-License-Identifier: Apache-2.0
/// @file
/// A stack of policies, which is the only place that checks whether they fit together; and the stack for its dry runs:
/// a device without storage, a simulated communicator, and a strategy as a value, so that stacks that differ only in
/// strategy, layout, communicator or tiling share it.
#pragma once

#include <tessera/fsdp/core/language.hpp>  // before all others

#include <string>
#include <type_traits>
#include <utility>

#include <tessera/comm/collectives.hpp>
#include <tessera/comm/simulated.hpp>
#include <tessera/fsdp/buffer/layout.hpp>
#include <tessera/fsdp/core/policy_text.hpp>
#include <tessera/fsdp/device/device.hpp>
#include <tessera/fsdp/device/host_memory.hpp>
#include <tessera/fsdp/device/meta.hpp>
#include <tessera/fsdp/precision/policies.hpp>
#include <tessera/fsdp/sharding/problem.hpp>
#include <tessera/fsdp/sharding/schedule.hpp>
#include <tessera/fsdp/sharding/sequence.hpp>
#include <tessera/fsdp/sharding/strategies.hpp>
#include <tessera/fsdp/sharding/strategy.hpp>

namespace fsdp {

namespace tiling {
struct Untiled;  // both from tessera/tiling/policies.hpp, which sharding does not include
template <class T>
consteval bool check_tiling();
}  // namespace tiling

namespace detail {

/// Whether a type is a tiling. Untiled, only declared here, is not checked.
template <class T>
consteval bool is_tiling() {
  if constexpr (std::is_same_v<T, tiling::Untiled>)
    return true;
  else
    return tiling::check_tiling<T>();
}

/// Checks that a communicator supports the exchanges that sequence sharding needs, if sequences are sharded.
template <class Comm, class Sequence>
consteval bool exchanges_sequences() {
  if constexpr (Sequence::shards)
    return comm::check_exchanges<Comm>();
  else
    return true;
}

/// Returns the position of a policy among a Stack's arguments, as inferred from its members; -1 for other types.
template <class T>
consteval int place_in_stack() {
  if constexpr (requires { typename T::AtRest; }) return 0;
  if constexpr (requires { typename T::Request; }) return 1;
  if constexpr (requires { typename T::Accumulate; }) return 2;
  if constexpr (requires { &T::plan; }) return 3;
  return -1;
}

/// Whether no policy is in the position of another one.
template <class... Policies>
consteval bool in_order() {
  bool good = true;
  int at = 0;
  const auto add = [&](int place) { good = good && (place < 0 || place == at), ++at; };
  (add(place_in_stack<Policies>()), ...);
  return good;
}

}  // namespace detail

/// Whether a type is a Stack, or has the same member types.
template <class T>
consteval bool check_stack() {
  return requires {
    typename T::Sharding;
    typename T::Comm;
    typename T::Device;
    typename T::Precision;
  };
}

/// The policies of a program: sharding, communication, precision, tiling, and whether sequences are sharded. Policies
/// are types; their numbers are values of those types. Code with its own forward and backward tiles and splits
/// sequences itself, and omits the last two arguments.
template <class ShardingT, class CommT, class PrecisionT, class TilingT = tiling::Untiled,
          class SequenceT = WholeSequences>
struct Stack {
  static_assert(
      detail::in_order<ShardingT, CommT, PrecisionT, TilingT>(),
      "fsdp: the arguments of Stack are in another order than Stack<Sharding, Comm, Precision, Tiling>; give "
      "a strategy such as FullyShard<>, then a communicator such as comm::Threads<>, then a precision such as "
      "Fp32, then the tiling, if there is one");
  static_assert(check_sharding<ShardingT>(),
                "fsdp: the first argument of Stack<Sharding, Comm, Precision, Tiling> is no sharding strategy");
  static_assert(comm::check_communicator<CommT>(),
                "fsdp: the second argument of Stack<Sharding, Comm, Precision, Tiling> is no communicator");
  static_assert(check_precision<PrecisionT>(),
                "fsdp: the third argument of Stack<Sharding, Comm, Precision, Tiling> is no precision");
  static_assert(detail::is_tiling<TilingT>(),
                "fsdp: the fourth argument of Stack<Sharding, Comm, Precision, Tiling> is no tiling");
  static_assert(SequencePolicy<SequenceT>,
                "fsdp: the fifth argument of Stack<Sharding, Comm, Precision, Tiling, Sequence> says nothing of "
                "sequences; leave it out (WholeSequences), or take Ulysses, which shards each over several ranks");
  static_assert(detail::exchanges_sequences<CommT, SequenceT>());
  static_assert(device::check_device<typename CommT::Device>());

  using Sharding = ShardingT;             ///< how weights, gradients and optimizer state are placed
  using Comm = CommT;                     ///< communicator that moves them between ranks
  using Device = typename CommT::Device;  ///< memory and compute device
  using Precision = PrecisionT;           ///< element types
  using Tiling = TilingT;                 ///< how sequences are cut into tiles
  using Sequence = SequenceT;             ///< whether several ranks share a sequence
  /// Placement, over the mesh's outer axis, of main weights and optimizer state.
  using OptimizerPlacement = fsdp::OptimizerPlacement<Sharding>;
  static constexpr int mesh_axes = mesh_axes_of<Sharding>;  ///< number of axes of the mesh of ranks
  /// Whether a value may use only one of two axes.
  static constexpr bool axes_by_value = fsdp::axes_by_value<Sharding>;
  /// Where main weights and optimizer state live.
  using OptimizerSpace = std::conditional_t<offloads_optimizer_of<Sharding>, device::HostOffload<Device>, Device>;
  /// The part of the stack that code on one rank depends on: device and precision.
  using Local = fsdp::Local<Device, LocalPrecision<Precision>>;

  static_assert(
      device::computes_in<Device, typename Precision::Compute>,
      "fsdp: this device has no matmul in the precision's Compute type (oneDNN has none in f16 on CPU); take Bf16Mixed "
      "or Fp32, or a device that computes in f16");
  static_assert(
      comm::supports_wire<Comm, typename Precision::Reduce>,
      "fsdp: this communicator cannot reduce the precision's wire type Reduce; choose a precision whose Reduce it "
      "supports (float always is), or another backend");
  static_assert(
      std::is_same_v<typename Precision::Main, float> && std::is_same_v<typename Precision::Accumulate, float>,
      "fsdp: optimizers and the weight-gradient matmuls work in float; make the precision's Main and Accumulate float");

  /// The same stack without tiling, for code that does not depend on it: units, their optimizer and their
  /// communication.
  using WithoutTiling = Stack<Sharding, Comm, Precision, tiling::Untiled, Sequence>;
  /// The same stack with another communicator, and so with another device. The tiling is then a value.
  template <class OtherComm>
  using WithComm = Stack<Sharding, OtherComm, Precision, tiling::Untiled, Sequence>;

  /// Returns text such as "fsdp2 / threads / bf16".
  static std::string name(const Sharding& sharding = {}) {
    return policy_text(sharding) + " / " + policy_text<Comm>() + " / " + policy_text<Precision>();
  }
};

/// Any strategy whose main weights and optimizer state have the placement AcrossT over the mesh's outer axis, and are
/// in host memory if `offloads`. `pieces`: see fsdp::may_have_pieces.
template <class AcrossT, bool offloads, bool pieces>
struct Described {
  using AtRest = buffer::Shard;                ///< default; Facts::whole_at_rest is set if this value replicates
  using Across = AcrossT;                      ///< placement of optimizer state over the outer axis
  using Layout = buffer::Flat;                 ///< not used: the strategy's own layout is in its calls
  static constexpr int mesh_axes = 2;          ///< at most; a value may work on one
  static constexpr bool axes_by_value = true;  ///< number of axes depends on the value
  static constexpr bool offloads_optimizer = offloads;  ///< optimizer state is in host memory
  static constexpr bool may_have_pieces = pieces;       ///< see fsdp::may_have_pieces

  StrategyCalls calls;     ///< the strategy
  bool has_pieces = true;  ///< strategies of its type may split steps into pieces; its Meta instance may support more

  /// As of the strategy.
  /// @{
  sharding::Facts facts() const { return calls.facts; }
  sharding::Schedule schedule(const sharding::Problem& problem) const { return calls.schedule_of(problem); }
  int ranks_per_group() const { return calls.mesh.ranks_per_group.value_or(0); }
  /// @}
};

/// Always true here: an optimizer of whole tensors is checked with the strategy's own type
/// (optim::check_whole_tensors).
template <class Across, bool offloads, bool pieces>
inline constexpr bool tensors_whole<Described<Across, offloads, pieces>> = true;

namespace detail {
/// The stack of the described strategy has already checked it.
template <class Across, bool offloads, bool pieces>
inline constexpr bool checked_by_library<Described<Across, offloads, pieces>> = true;
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
