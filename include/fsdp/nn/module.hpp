// SPDX-License-Identifier: Apache-2.0
/// @file
/// What a module is: pure functions over gathered weights, and the types that they are written in.
///
/// A module owns no weights. It lists its parameters in an aggregate `Fields<V>` of one type, nested for composite
/// modules; the same aggregate carries the gathered weights and the gradients. `flatten` turns it into an array and
/// `unflatten` back. All that a module's template sees is `Local`: device, precision, tiling; never a communicator,
/// never a sharding.
#pragma once

#include <array>
#include <bit>
#include <concepts>
#include <cstdint>
#include <type_traits>
#include <utility>
#include <vector>

#include <fsdp/core/tensor.hpp>
#include <fsdp/device/documents.hpp>
#include <fsdp/device/memory.hpp>
#include <fsdp/precision/policies.hpp>
#include <tiling/policies.hpp>

namespace fsdp::nn {

/// The three policies that a rank uses alone.
template <class DeviceT, class PrecisionT, class TilingT>
struct Local {
  using Device = DeviceT;
  using Precision = PrecisionT;
  using Tiling = TilingT;
  using Compute = typename Precision::Compute;
  using Accumulate = typename Precision::Accumulate;
  using Arena = typename Device::Arena;
  using Frame = typename Device::Arena::Frame;
};

/// How a parameter begins: normal with deviation 0.02, or ones.
enum class Initial : std::uint8_t { normal, ones };

/// A parameter as a module names it. `name` is a literal: the checkpoint's name without the unit's prefix, or with a
/// leading
/// '/' the whole name, for weights that two units may share.
struct Parameter {
  const char* name = "";
  Shape shape;
  Initial initial = Initial::normal;
};

/// A weight gradient and whether its first write since the last reduction is still to come.
template <class T>
struct GradientView {
  Tensor<T> tensor;
  bool* written = nullptr;

  /// A frozen weight's gradient has a shape and no memory; nobody writes it.
  bool wanted() const { return tensor.data() != nullptr; }
  /// Rows or columns of it, which know by `part_written` whether their own first write is still to come.
  GradientView rows(std::int64_t begin, std::int64_t end, bool* part_written) const {
    return {wanted() ? tensor.slice(begin, end) : Tensor<T>(nullptr, {end - begin, tensor.columns()}), part_written};
  }
  GradientView columns(std::int64_t begin, std::int64_t end, bool* part_written) const {
    return {wanted() ? tensor.slice_columns(begin, end) : Tensor<T>(nullptr, {tensor.rows(), end - begin}),
            part_written};
  }

  /// How the next write goes in: the first replaces what the memory held, later ones add (beta = 0, then 1).
  Write next() const { return std::exchange(*written, true) ? Write::accumulate : Write::overwrite; }
};

/// What a module may use while it computes. Tensors are [tokens, ...]; positions count from the start of a document.
template <class L>
struct Context {
  typename L::Arena& arena;
  typename L::Device::Stream& stream;
  typename L::Tiling tiling{};
  std::int64_t sequences = 1;
  std::int64_t sequence_length = 0;
  device::CumulativeLengths documents{};  ///< of packed documents; empty: each sequence is one
  Tensor<const float> rotary{};           ///< [sequence_length, head_dim]: cos of each pair, then sin
  void (*poll)(void*) = nullptr;
  void* poll_state = nullptr;
  std::vector<std::pair<tiling::Problem, tiling::TilePlan>> plans{};  ///< made so far (nn/settled_plan.hpp)

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

template <template <class> class Fields, class V>
std::array<V, field_count<Fields, V>> flatten(const Fields<V>& fields) {
  return std::bit_cast<std::array<V, field_count<Fields, V>>>(fields);
}

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

/// A unit that makes the residual stream out of tokens. Its backward takes no weights, so it never gathers in backward.
template <class M, class L>
concept EntryModule = requires(const M module, Context<L>& context, const typename M::Weights& weights,
                               const typename M::Gradients& gradients, Tensor<const std::int32_t> tokens,
                               Tensor<typename L::Compute> y) {
  { module.parameters() } -> std::same_as<typename M::Parameters>;
  module.forward(context, weights, tokens, y);
  module.backward(context, gradients, tokens, Tensor<const typename L::Compute>(y));
};

/// The targets of a micro-batch [T]: the host finds the rows that count, the device reads the same list.
struct Targets {
  Tensor<const std::int32_t> host, device;

  Targets() = default;
  /// Where one list serves both.
  template <std::convertible_to<Tensor<const std::int32_t>> List>
  Targets(const List& list) : host(list), device(list) {}
};

/// A unit that ends in a loss: loss and gradient in one go, tile by tile.
template <class M, class L>
concept LossModule = requires(const M module, Context<L>& context, const typename M::Weights& weights,
                              const typename M::Gradients& gradients, Tensor<const typename L::Compute> x,
                              Tensor<typename L::Compute> dx, const Targets& targets, float scale,
                              Tensor<double> loss) {
  { module.parameters() } -> std::same_as<typename M::Parameters>;
  module.loss(context, weights, gradients, x, targets, scale, dx, loss);
  module.loss_only(context, weights, x, targets, loss);
  module.logits(context, weights, x, dx);
};

}  // namespace fsdp::nn
