// SPDX-License-Identifier: Apache-2.0
/// @file
/// Modules: pure functions over gathered weights, and the types in their signatures.
///
/// A module owns no weights. It lists its parameters in an aggregate `Fields<V>`, whose members are all of type V;
/// composite modules nest them. The same aggregate carries the gathered weights and the gradients. `flatten` turns it
/// into an array and `unflatten` back. A module's template parameter is `Local`, device and precision: modules are
/// independent of communicators and sharding.
#pragma once

#include <concepts>
#include <cstdint>
#include <memory>
#include <span>
#include <utility>

#include <tessera/fsdp/core/parameter.hpp>
#include <tessera/fsdp/core/tensor.hpp>
#include <tessera/fsdp/device/documents.hpp>
#include <tessera/fsdp/device/memory.hpp>
#include <tessera/fsdp/device/operation.hpp>
#include <tessera/fsdp/nn/tile_plans.hpp>
#include <tessera/fsdp/precision/policies.hpp>

namespace fsdp::nn {

/// Types in the interface of modules, from tessera/fsdp/core and tessera/fsdp/precision.
/// @{
using fsdp::field_count;
using fsdp::flatten;
using fsdp::GradientView;
using fsdp::Initial;
using fsdp::Local;
using fsdp::Role;
using fsdp::unflatten;
using Parameter = fsdp::Field;
/// @}

/// Positions of the tokens in a decoding pass, which adds one token to each sequence. The cache contains the earlier
/// tokens (CachingBlock).
struct Positions {
  std::span<const std::int32_t> host = {};  // [sequences], in host memory
  Tensor<const std::int32_t> device = {};   // the same values in memory that the device can read

  /// True if sequences begin with this pass: in training and in the prefill pass of generation.
  bool empty() const { return host.empty(); }
};

/// The source of a micro-batch's random numbers, which are functions of `key` and of a row's number. Rows are numbered
/// over all steps, ranks and micro-batches of a run. Key 0 disables random numbers.
struct Noise {
  std::uint64_t key = 0;
  std::int64_t first_row = 0;  ///< number of this micro-batch's first row
};

/// The resources and the micro-batch shape for a module's computation: memory, a stream, tile plans. Tensors are
/// [tokens, ...].
///
/// A module's allocations may depend only on its own members, on `tokens()`, on `training` and on whether `positions`
/// is empty. Dry runs also cover batches with noise and documents (nn::for_each_load), but not different numbers of
/// documents.
template <class L>
struct Context {
  typename L::Arena& arena;
  typename L::Device::Stream& stream;
  std::shared_ptr<TilePlans> plans = shared_plans();  ///< plans of tiled modules, see plan_of
  std::int64_t sequences = 1;
  std::int64_t sequence_length = 0;
  device::CumulativeLengths documents{};  ///< of packed documents; empty if each sequence is one document
  Positions positions{};                  ///< empty if sequences begin with this pass
  Noise noise{};                          ///< random numbers of a training pass
  bool training = true;  ///< whether backward follows; a module with dropout then allocates its memory, even if the
                         ///< noise is disabled
  void (*poll)(void*) = nullptr;
  void* poll_state = nullptr;

  std::int64_t tokens() const { return sequences * sequence_length; }  ///< of the micro-batch
  /// Lets pending communication make progress; long loops call it between matmuls.
  void progress() const {
    if (poll != nullptr) poll(poll_state);
  }
  /// Enqueues an operation on the stream.
  template <class Operation>
  void enqueue(const Operation& operation) const {
    device::enqueue(stream, operation);
  }
  /// Enqueues operation.with(weight), in the type that the weight has; the operation is given without a weight.
  template <class Operation>
  void enqueue(const typename L::Weight& weight, const Operation& operation) const {
    with_view(weight, [&](const auto& view) { device::enqueue(stream, operation.with(view)); });
  }
  /// Returns the same context for modules with another precision.
  template <class Precision>
  Context<Local<typename L::Device, Precision>> in() const {
    return {arena, stream, plans, sequences, sequence_length, documents, positions, noise, training, poll, poll_state};
  }
  /// Allocates memory that lives until this unit's backward is done.
  template <class T>
  Tensor<T> save(const Shape& shape) const {
    return arena.template allocate<T>(L::Arena::End::low, shape);
  }
};

/// The types that follow from a module's Local and Fields.
template <class L, template <class> class FieldsT>
struct ModuleTypes {
  using Compute = typename L::Compute;
  using Accumulate = typename L::Accumulate;
  template <class V>
  using FieldsOf = FieldsT<V>;
  using Parameters = FieldsT<Parameter>;
  using Weights = FieldsT<typename L::Weight>;
  using Gradients = FieldsT<GradientView<Accumulate>>;
  static constexpr std::size_t parameter_count = field_count<FieldsT, Parameter>;
};

/// Returns the declaration of a norm's weight, whose operations (device::RmsNorm) also take it in float.
inline Parameter norm_parameter(const char* name, std::int64_t size) {
  return {.name = name, .shape = {size}, .initial = Initial::ones, .may_be_float = true};
}

/// Redeclares, in a module, the types of its base ModuleTypes<L, Fields>. The base depends on L, so that unqualified
/// lookup does not find its types.
#define FSDP_MODULE_TYPES(...)            \
  using Types = ModuleTypes<__VA_ARGS__>; \
  using typename Types::Compute;          \
  using typename Types::Gradients;        \
  using typename Types::Parameters;       \
  using typename Types::Weights;

/// A unit between two residual streams: forward writes y = f(x), backward overwrites dy with dx. `Saved` contains the
/// tensors that forward saves for backward.
template <class M, class L>
concept Module = requires(const M module, Context<L>& context, const typename M::Weights& weights,
                          const typename M::Gradients& gradients, typename M::Saved& saved,
                          Tensor<const typename L::Compute> x, Tensor<typename L::Compute> y) {
  { module.parameters() } -> std::same_as<typename M::Parameters>;
  module.forward(context, weights, saved, x, y);
  module.backward(context, weights, gradients, std::as_const(saved), y);
};

/// The type `Shared` of a model whose entry computes nothing for its blocks.
struct Nothing {};

/// A block whose backward reads no weights, so that they are not gathered for it.
template <class M, class L>
concept BlockWithoutWeightsInBackward = requires(const M block, Context<L>& context, const typename M::Shared& shared,
                                                 const typename M::Gradients& gradients, typename M::Saved& saved,
                                                 Tensor<typename L::Compute> dy) {
  block.backward(context, shared, gradients, std::as_const(saved), dy);
};

/// A model's unit between two residual streams: a Module that also reads `Shared`, which the entry computes for all
/// blocks.
template <class M, class L>
concept BlockModule = requires(const M block, Context<L>& context, const typename M::Shared& shared,
                               const typename M::Weights& weights, typename M::Saved& saved,
                               Tensor<const typename L::Compute> x, Tensor<typename L::Compute> y) {
  { block.parameters() } -> std::same_as<typename M::Parameters>;
  block.forward(context, shared, weights, saved, x, y);
}
&&(BlockWithoutWeightsInBackward<M, L> ||
   requires(const M block, Context<L>& context, const typename M::Shared& shared, const typename M::Weights& weights,
            const typename M::Gradients& gradients, typename M::Saved& saved, Tensor<typename L::Compute> dy) {
     block.backward(context, shared, weights, gradients, std::as_const(saved), dy);
   });

/// A block with a cache (such as a KV cache), which can continue sequences. It stores `cache_columns()` numbers per
/// token in a cache [sequences * capacity, cache_columns()]. The block defines the layout inside the cache. `extend` is
/// a forward that saves nothing for backward: it writes this pass's tokens to the cache and, in a decoding pass
/// (Context::positions), reads the earlier tokens.
template <class M, class L>
concept CachingBlock = BlockModule<M, L> &&
    requires(const M block, Context<L>& context, const typename M::Shared& shared, const typename M::Weights& weights,
             Tensor<typename L::Compute> cache, Tensor<const typename L::Compute> x, Tensor<typename L::Compute> y) {
  { block.cache_columns() } -> std::same_as<std::int64_t>;
  block.extend(context, shared, weights, cache, x, y);
};

/// An entry whose backward reads no weights, so that they are not gathered for it.
template <class M, class L, class Input>
concept EntryWithoutWeightsInBackward = requires(const M entry, Context<L>& context,
                                                 const typename M::Gradients& gradients, const Input& input,
                                                 Tensor<const typename L::Compute> dy) {
  entry.backward(context, gradients, input, dy);
};

/// A model's first unit: it computes the residual stream from a batch's input, and the values that all blocks share.
/// `share` is called at the start of every pass; memory that it saves lives until the pass ends. Its context has the
/// sequences of the pass's largest micro-batch, and neither documents nor noise, since those differ between
/// micro-batches.
template <class M, class L, class Input>
concept EntryModule = requires(const M entry, Context<L>& context, const typename M::Weights& weights,
                               const Input& input, Tensor<typename L::Compute> y) {
  { entry.parameters() } -> std::same_as<typename M::Parameters>;
  { entry.share(context) } -> std::same_as<typename M::Shared>;
  entry.forward(context, weights, input, y);
}
&&(EntryWithoutWeightsInBackward<M, L, Input> ||
   requires(const M entry, Context<L>& context, const typename M::Weights& weights,
            const typename M::Gradients& gradients, const Input& input,
            Tensor<const typename L::Compute> dy) { entry.backward(context, weights, gradients, input, dy); });

/// The targets of a micro-batch [T], in host memory (to find the rows with a target) and in memory that the device can
/// read.
struct Targets {
  Tensor<const std::int32_t> host, device;

  Targets() = default;
  /// Uses one list for both, if the device reads host memory.
  template <std::convertible_to<Tensor<const std::int32_t>> List>
  Targets(const List& list) : host(list), device(list) {}
};

/// A model's last unit: `loss` computes loss and gradients together, tile by tile; `loss_only` computes no gradients.
template <class M, class L, class TargetsT = Targets>
concept LossModule = requires(const M module, Context<L>& context, const typename M::Weights& weights,
                              const typename M::Gradients& gradients, Tensor<const typename L::Compute> x,
                              Tensor<typename L::Compute> dx, const TargetsT& targets, float scale,
                              Tensor<double> loss) {
  { module.parameters() } -> std::same_as<typename M::Parameters>;
  module.loss(context, weights, gradients, x, targets, scale, dx, loss);
  module.loss_only(context, weights, x, targets, loss);
};

/// A head that can also compute logits, which generation requires.
template <class M, class L>
concept GeneratingHead = requires(const M module, Context<L>& context, const typename M::Weights& weights,
                                  Tensor<const typename L::Compute> x, Tensor<typename L::Compute> logits) {
  module.logits(context, weights, x, logits);
  { module.logits_columns() } -> std::same_as<std::int64_t>;
};

}  // namespace fsdp::nn
