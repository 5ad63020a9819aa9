// SPDX-License-Identifier: Apache-2.0
/// @file
/// A precision for each tensor: `PrecisionBy` computes with some weights in float and with the others in 16 bits.
///
/// Its type lists precisions; which tensors have which is a value (UnitOptions::precision), as for PerUnit.
#pragma once

#include <tessera/fsdp/core/language.hpp>  // must be included before all others

#include <string>
#include <string_view>
#include <tuple>
#include <type_traits>
#include <vector>

#include <tessera/fsdp/core/policy_text.hpp>
#include <tessera/fsdp/core/tensor_pattern.hpp>
#include <tessera/fsdp/precision/policies.hpp>

namespace fsdp {

/// Which tensors are float next to 16-bit tensors: the value of a PrecisionBy. Tensors that no pattern selects have the
/// policy's last precision.
struct FloatWeights {
  std::vector<TensorPattern> patterns = {};  ///< a tensor may match one
  std::vector<bool> is_float = {};           ///< for each pattern: whether its tensors are float

  /// Whether a tensor of a unit is float. Throws InputError if several patterns select it.
  bool contains(std::string_view unit, const Parameter& parameter) const;
  friend bool operator==(const FloatWeights&, const FloatWeights&) = default;
};

/// The last precision, with the weights that patterns select in float: `PrecisionBy{on("*norm*", Fp32{}),
/// otherwise(Bf16Mixed{})}` has the type PrecisionBy<Fp32, Bf16Mixed>, and converts to UnitOptions::precision. Main
/// weights, gradients and activations are those of the last precision; gradients of float weights are reduced in float.
template <class... P>
struct PrecisionBy : std::tuple_element_t<sizeof...(P) - 1, std::tuple<P...>> {
  using Rest = std::tuple_element_t<sizeof...(P) - 1, std::tuple<P...>>;  ///< of tensors that no pattern selects
  static constexpr bool has_float_weights = true;                         ///< see fsdp::has_float_weights
  static_assert(sizeof...(P) > 1,
                "fsdp: PrecisionBy lists precisions, and the last is that of all other tensors; give "
                "it at least two, as in PrecisionBy<Fp32, Bf16Mixed>");
  static_assert((Precision<P> && ...),
                "fsdp: PrecisionBy lists a type that is no precision policy; give on(pattern, precision) and "
                "otherwise(precision) Fp32{} and the last one");
  static_assert(!std::is_same_v<typename Rest::Compute, float>,
                "fsdp: PrecisionBy computes with some weights in float next to 16-bit weights, and its last precision "
                "computes in float already; make Bf16Mixed or Fp16Mixed the last");
  static_assert(
      ((std::is_same_v<typename P::Compute, float> ||
        std::is_same_v<typename P::Compute, typename Rest::Compute>)&&...),
      "fsdp: PrecisionBy combines one 16-bit type with float, and a precision in it has another Compute; give "
      "it Fp32 and its last precision alone");

  FloatWeights weights = {};  ///< which tensors are float

  PrecisionBy() = default;
  /// `selected`: a list of `on(pattern, precision)`, and `otherwise(precision)` at the end.
  template <class... Listed>
  requires(sizeof...(Listed) == sizeof...(P)) explicit PrecisionBy(const Listed&... listed) {
    static_assert(detail::end_with_otherwise<Listed...>(),
                  "fsdp: PrecisionBy ends with the precision of all other tensors; write PrecisionBy{on(pattern, "
                  "Fp32{}), ..., otherwise(Bf16Mixed{})}");
    static_assert((std::is_same_v<typename detail::Listed<Listed>::type, P> && ...),
                  "fsdp: a precision in PrecisionBy{...} has another type than PrecisionBy<...> lists in its place; "
                  "leave <...> out, so that the type follows from the values");
    (add(listed), ...);
  }

  operator FloatWeights() const { return weights; }  ///< for UnitOptions::precision
  static std::string text() { return policy_text<Rest>() + "+fp32"; }

 private:
  template <class Part>
  void add(const Part& one) {
    if constexpr (detail::Listed<Part>::has_pattern) {
      weights.patterns.push_back(one.pattern);
      weights.is_float.push_back(std::is_same_v<typename detail::Listed<Part>::type::Compute, float>);
    }
  }
};
/// @cond
template <class... Listed>
PrecisionBy(const Listed&...) -> PrecisionBy<typename detail::Listed<Listed>::type...>;
/// @endcond

namespace detail {
template <class... P>
struct WithoutWire<PrecisionBy<P...>>
    : std::type_identity<PrecisionBy<Fp32, LocalPrecision<typename PrecisionBy<P...>::Rest>>> {};
}  // namespace detail

}  // namespace fsdp
