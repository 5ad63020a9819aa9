// SPDX-License-Identifier: Apache-2.0
/// @file
/// The Meta instance of a model, which its dry runs compute with. Those of the library's Llama are compiled into the
/// library, four for each device and precision: one for each placement and memory of optimizer state. They can cut
/// steps into pieces and share sequences. That of any other model can do what its stack can.
#pragma once

#include <type_traits>

#include <tessera/comm/simulated.hpp>
#include <tessera/fsdp/buffer/layout.hpp>
#include <tessera/fsdp/device/meta.hpp>
#include <tessera/fsdp/module/stack.hpp>
#include <tessera/fsdp/precision/policies.hpp>
#include <tessera/fsdp/sharding/sequence.hpp>
#include <tessera/fsdp/sharding/strategy.hpp>

namespace fsdp {

template <class StackT>
class Llama;  // tessera/fsdp/models/llama.hpp
namespace optim {
struct RunTimeOptimizer;  // tessera/fsdp/training/run_time_optimizer.hpp
}  // namespace optim

namespace plan {
namespace detail {

template <class T, class... List>
inline constexpr bool is_one_of = (std::is_same_v<T, List> || ...);

/// Whether steps may be cut into pieces in the library's instances with this placement: no strategy of the library
/// cuts them where optimizer state is sharded across groups.
template <class Across>
inline constexpr bool library_has_pieces = std::is_same_v<Across, buffer::Replicate>;

template <class Across, bool offloads>
using MetaSharding = Described<Across, offloads, library_has_pieces<Across>>;
template <class Target, class Across, bool offloads, class Precision>
using MetaLlama = Llama<Stack<MetaSharding<Across, offloads>, comm::Simulated<device::MetaOf<Target>>, Precision,
                              tiling::Untiled, Ulysses>>;

/// Whether the library has the dry runs of a Meta instance: see FSDP_META_LLAMA in tessera/fsdp/plan/dry_run.hpp.
template <class MetaModel>
inline constexpr bool is_in_library = false;
template <class Across, bool offloads, class Target, class Precision>
inline constexpr bool
    is_in_library<Llama<Stack<Described<Across, offloads, library_has_pieces<Across>>,
                              comm::Simulated<device::MetaOf<Target>>, Precision, tiling::Untiled, Ulysses>>> =
        is_one_of<Target, device::Cpu, device::Cuda>&& is_one_of<Precision, Fp32, Bf16Mixed, Bf16Wire<Bf16Mixed>>;

template <class Model, class Optimizer>
struct MetaTwinOf {
  using Stack = typename Model::Stack;
  using Across = OptimizerPlacement<typename Stack::Sharding>;
  static constexpr bool has_pieces = may_have_pieces<typename Stack::Sharding> || library_has_pieces<Across>;
  using InLibrary = typename Model::template On<MetaStack<Stack, has_pieces, Ulysses>>;
  using Own = typename Model::template On<MetaStack<Stack>>;
  /// Ulysses, or a policy by which no ranks share sequences.
  static constexpr bool has_sequences = std::is_same_v<typename Stack::Sequence, Ulysses> || !Stack::Sequence::shards;
  static constexpr bool in_library =
      std::is_same_v<Optimizer, optim::RunTimeOptimizer> && has_sequences && is_in_library<InLibrary>;
  using Type = std::conditional_t<in_library, InLibrary, Own>;
};

}  // namespace detail

/// The same model on a device without storage that counts for the model's device; one type for all tilings, and for all
/// strategies with the same placement of optimizer state.
template <class Model, class Optimizer = optim::RunTimeOptimizer>
using MetaTwin = typename detail::MetaTwinOf<Model, Optimizer>::Type;

}  // namespace plan
}  // namespace fsdp
