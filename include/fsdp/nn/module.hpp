// SPDX-License-Identifier: Apache-2.0
/// @file
/// What a module is: pure functions over gathered weights, and the types that they are written in.
///
/// A module owns no weights. It lists its parameters in an aggregate `Fields<V>` of one type, nested for composite
/// modules; the same aggregate carries the gathered weights and the gradients. `flatten` turns it into an array and
/// `unflatten` back. All that a module's template sees is `Local`: device and precision; never a communicator, never a
/// sharding.
#pragma once

#include <array>
#include <bit>
#include <concepts>
#include <cstdint>
#include <map>
#include <span>
#include <type_traits>
#include <utility>
#include <vector>

#include <fsdp/core/tensor.hpp>
#include <fsdp/device/documents.hpp>
#include <fsdp/device/memory.hpp>
#include <fsdp/precision/policies.hpp>
#include <tiling/chosen.hpp>

namespace fsdp::nn {

/// The policies that a rank uses alone and that modules are compiled for. Tiling is one more, which a context brings as
/// a value: modules are the same code under each.
template <class DeviceT, class PrecisionT>
struct Local {
  using Device = DeviceT;
  using Precision = PrecisionT;
  using Compute = typename Precision::Compute;
  using Accumulate = typename Precision::Accumulate;
  using Arena = typename Device::Arena;
  using Frame = typename Device::Arena::Frame;
};

/// How the elements of a parameter begin.
struct Initial {
  /// Kinds of initial values.
  enum class Kind : std::uint8_t { normal, zeros, ones };
  Kind kind = Kind::normal;
  double deviation = 0.02;  ///< of normal values; their mean is 0

  /// Normal values of mean 0.
  static constexpr Initial normal(double deviation) { return {Kind::normal, deviation}; }
  static const Initial zeros, ones;

  friend constexpr bool operator==(const Initial&, const Initial&) = default;
};
inline constexpr Initial Initial::zeros{Kind::zeros, 0};
inline constexpr Initial Initial::ones{Kind::ones, 0};

/// What a parameter is for; optimizers may treat each kind in its own way.
enum class Role : std::uint8_t {
  matrix,  ///< of a linear layer
  table,   ///< rows that are looked up, or that score a vocabulary
  vector,  ///< norms, biases
};

/// A parameter as a module names it. `name` is a literal: the checkpoint's name without the unit's prefix, or with a
/// leading '/' the whole name, for weights that two units may share. A module whose values say that it has no such
/// parameter leaves it `absent`: its weights and gradients are then empty tensors.
struct Parameter {
  const char* name = "";
  Shape shape;
  Initial initial = {};
  Role role = shape.rank == 2 ? Role::matrix : Role::vector;
  bool decays = shape.rank == 2;  ///< whether weight decay applies
  /// Whether it is multiplied together with the one before it, as a matrix of all their rows (nn/projection.hpp).
  bool joins_previous = false;
  /// Trained beside weights that are not: where a model has any, all other parameters are frozen (nn/low_rank.hpp).
  bool adapter = false;

  /// No parameter: where a module's values say so.
  static Parameter absent() { return {.name = "", .shape = {0}}; }
  /// Whether there is one.
  bool present() const { return name[0] != '\0'; }
};

/// A weight gradient and whether its first write since the last reduction is still to come.
template <class T>
struct GradientView {
  Tensor<T> tensor;
  bool* written = nullptr;

  /// False for a frozen weight, whose gradient has a shape and no memory.
  bool wanted() const { return tensor.data() != nullptr; }
  /// Rows or columns of it, which know by `part_written` whether their own first write is still to come.
  GradientView rows(std::int64_t begin, std::int64_t end, bool* part_written) const {
    return {wanted() ? tensor.slice(begin, end) : Tensor<T>(nullptr, {end - begin, tensor.columns()}), part_written};
  }
  /// Columns [begin, end), as `rows`.
  GradientView columns(std::int64_t begin, std::int64_t end, bool* part_written) const {
    return {wanted() ? tensor.slice_columns(begin, end) : Tensor<T>(nullptr, {tensor.rows(), end - begin}),
            part_written};
  }

  /// How the next write goes in: the first replaces what the memory held, later ones add (beta = 0, then 1).
  Write next() const { return std::exchange(*written, true) ? Write::accumulate : Write::overwrite; }
};

/// A plan that was made for a kind of module and a problem.
struct KnownPlan {
  const void* kind = nullptr;
  tiling::Problem problem{};
  tiling::TilePlan plan{};
};

/// Of sequences that go on: where the one token stands that a pass adds to each; the tokens before it were kept
/// (CachingBlock).
struct Positions {
  std::span<const std::int32_t> host = {};  // [sequences]
  Tensor<const std::int32_t> device = {};   // the same

  /// Whether sequences begin with this pass.
  bool empty() const { return host.empty(); }
};

/// Where a micro-batch's random numbers come from: of a row (of all micro-batches of all ranks) and a key, which is
/// another in each step; 0: nothing is random, as in evaluation.
struct Noise {
  std::uint64_t key = 0;
  std::int64_t first_row = 0;  ///< of this micro-batch
};

/// What a module may use while it computes. Tensors are [tokens, ...].
template <class L>
struct Context {
  typename L::Arena& arena;
  typename L::Device::Stream& stream;
  tiling::Chosen tiling{};
  std::int64_t sequences = 1;
  std::int64_t sequence_length = 0;
  device::CumulativeLengths documents{};  ///< of packed documents; empty: each sequence is one
  Positions positions{};                  ///< empty: sequences begin with this pass
  Noise noise{};
  void (*poll)(void*) = nullptr;
  void* poll_state = nullptr;
  const tiling::TilePlan* decided = nullptr;  ///< taken instead of the tiling's: what dry runs compute with
  std::vector<KnownPlan> plans{};             ///< made so far (nn/settled_plan.hpp)
  /// Bytes of a head's tile by (rows, columns of a block): of its loss alone, with first and with added gradients.
  std::map<std::array<std::int64_t, 2>, std::array<std::int64_t, 3>> head_peaks{};

  /// Of all sequences of the micro-batch.
  std::int64_t tokens() const { return sequences * sequence_length; }
  /// Lets communication proceed; long loops call it between matmuls.
  void progress() const {
    if (poll != nullptr) poll(poll_state);
  }
  /// Memory that lives until this unit's backward is done.
  template <class T>
  Tensor<T> save(const Shape& shape) const {
    return arena.template allocate<T>(L::Arena::End::low, shape);
  }
};

/// Number of parameters in an aggregate of V.
template <template <class> class Fields, class V>
inline constexpr std::size_t field_count = sizeof(Fields<V>) / sizeof(V);

/// The members of an aggregate of one type, in their order.
template <template <class> class Fields, class V>
std::array<V, field_count<Fields, V>> flatten(const Fields<V>& fields) {
  return std::bit_cast<std::array<V, field_count<Fields, V>>>(fields);
}

/// The aggregate again.
template <template <class> class Fields, class V>
Fields<V> unflatten(const std::array<V, field_count<Fields, V>>& list) {
  return std::bit_cast<Fields<V>>(list);
}

/// Types every module derives from its Local and its Fields.
template <class L, template <class> class FieldsT>
struct ModuleTypes {
  using Compute = typename L::Compute;
  using Accumulate = typename L::Accumulate;
  template <class V>
  using FieldsOf = FieldsT<V>;
  using Parameters = FieldsT<Parameter>;
  using Weights = FieldsT<Tensor<const Compute>>;
  using Gradients = FieldsT<GradientView<Accumulate>>;
  static constexpr std::size_t parameter_count = field_count<FieldsT, Parameter>;
};

/// A unit between two residual streams: y = f(x), and dx over dy. `Saved` is what forward keeps for backward.
template <class M, class L>
concept Module = requires(const M module, Context<L>& context, const typename M::Weights& weights,
                          const typename M::Gradients& gradients, typename M::Saved& saved,
                          Tensor<const typename L::Compute> x, Tensor<typename L::Compute> y) {
  { module.parameters() } -> std::same_as<typename M::Parameters>;
  module.forward(context, weights, saved, x, y);
  module.backward(context, weights, gradients, std::as_const(saved), y);
};

/// What blocks share where their model's entry makes nothing for them.
struct Nothing {};

/// A block whose backward takes no weights, so that they are not gathered for it.
template <class M, class L>
concept BlockWithoutWeightsInBackward = requires(const M block, Context<L>& context, const typename M::Shared& shared,
                                                 const typename M::Gradients& gradients, typename M::Saved& saved,
                                                 Tensor<typename L::Compute> dy) {
  block.backward(context, shared, gradients, std::as_const(saved), dy);
};

/// A model's unit between two residual streams: a Module that also reads what the entry made for all blocks.
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

/// A block that can continue sequences. Of each token it keeps `cache_columns()` numbers that later ones need, in a
/// cache [sequences * capacity, cache_columns()], laid out as it likes. `extend` is forward where nothing is saved, of
/// sequences that begin or go on (Context::positions): it keeps this pass's tokens, and reads those before them.
template <class M, class L>
concept CachingBlock = BlockModule<M, L> &&
    requires(const M block, Context<L>& context, const typename M::Shared& shared, const typename M::Weights& weights,
             Tensor<typename L::Compute> cache, Tensor<const typename L::Compute> x, Tensor<typename L::Compute> y) {
  { block.cache_columns() } -> std::same_as<std::int64_t>;
  block.extend(context, shared, weights, cache, x, y);
};

/// An entry whose backward takes no weights, so that they are not gathered for it.
template <class M, class L, class Input>
concept EntryWithoutWeightsInBackward = requires(const M entry, Context<L>& context,
                                                 const typename M::Gradients& gradients, const Input& input,
                                                 Tensor<const typename L::Compute> dy) {
  entry.backward(context, gradients, input, dy);
};

/// A unit that makes the residual stream out of a batch's input, and what all blocks share: `share` is called at the
/// start of every pass, and what it saves lives to the pass's end.
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

/// The targets of a micro-batch [T]: the host finds the rows that count, the device reads the same list.
struct Targets {
  Tensor<const std::int32_t> host, device;

  Targets() = default;
  /// Where one list serves both.
  template <std::convertible_to<Tensor<const std::int32_t>> List>
  Targets(const List& list) : host(list), device(list) {}
};

/// A unit that ends in a loss: loss and gradient in one go, tile by tile.
template <class M, class L, class TargetsT = Targets>
concept LossModule = requires(const M module, Context<L>& context, const typename M::Weights& weights,
                              const typename M::Gradients& gradients, Tensor<const typename L::Compute> x,
                              Tensor<typename L::Compute> dx, const TargetsT& targets, float scale,
                              Tensor<double> loss) {
  { module.parameters() } -> std::same_as<typename M::Parameters>;
  module.loss(context, weights, gradients, x, targets, scale, dx, loss);
  module.loss_only(context, weights, x, targets, loss);
};

/// A head that also gives the scores of what comes next: a model with one can generate.
template <class M, class L>
concept GeneratingHead = requires(const M module, Context<L>& context, const typename M::Weights& weights,
                                  Tensor<const typename L::Compute> x, Tensor<typename L::Compute> logits) {
  module.logits(context, weights, x, logits);
  { module.logits_columns() } -> std::same_as<std::int64_t>;
};

}  // namespace fsdp::nn
