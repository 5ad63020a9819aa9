// SPDX-License-Identifier: Apache-2.0
/// @file
/// Precision policies: the element type of weights, gradients and messages; and the dynamic loss scale that f16 needs.
///
/// To add a policy, add a struct with the four types here, its cases in tests/precision/policies_test.cpp and its name
/// in src/program/cli/stack_choice.cpp.
#pragma once

#include <tessera/fsdp/core/language.hpp>  // must be included before all others

#include <cstdint>
#include <string>
#include <string_view>
#include <type_traits>

#include <tessera/fsdp/core/dtype.hpp>
#include <tessera/fsdp/core/policy_text.hpp>
#include <tessera/fsdp/core/tensor.hpp>

namespace fsdp {

/// Throws LogicError: a weight of type `own` was read as `requested`. `name`: the weight's, empty if it is not known.
[[noreturn]] void throw_weight_type(DType own, DType requested, std::string_view name = {});

/// A view of a weight that is in T or in float; empty for an absent weight. It converts to a Tensor of the type that it
/// has. The conversion to the other one throws LogicError; where both types are possible, use `with_view`.
template <class T>
class InEither {
 public:
  using Float = std::conditional_t<std::is_const_v<T>, const float, float>;  ///< const if T is

  InEither() = default;
  /// Views a weight in T, in float, or for a dry run in both.
  /// @{
  InEither(const Tensor<T>& narrow) : narrow_(narrow) {}
  InEither(const Tensor<Float>& wide) : wide_(wide) {}
  InEither(const Tensor<T>& narrow, const Tensor<Float>& wide) : narrow_(narrow), wide_(wide) {}
  /// @}
  /// Whether the weight is in float.
  bool is_float() const { return wide_.data() != nullptr; }
  /// Return the view. Throw LogicError if the weight is in the other type alone.
  /// @{
  operator Tensor<T>() const {
    if (is_float() && narrow_.data() == nullptr) throw_weight_type(dtype_of<float>(), dtype_of<T>());
    return narrow_;
  }
  operator Tensor<Float>() const {
    if (!is_float() && narrow_.data() != nullptr) throw_weight_type(dtype_of<T>(), dtype_of<float>());
    return wide_;
  }
  /// @}
  /// Views of a weight in T, as those of a Tensor; they throw as the conversion does.
  /// @{
  T* data() const { return Tensor<T>(*this).data(); }
  InEither slice(std::int64_t begin, std::int64_t end) const { return Tensor<T>(*this).slice(begin, end); }
  InEither slice_columns(std::int64_t begin, std::int64_t end) const {
    return Tensor<T>(*this).slice_columns(begin, end);
  }
  /// @}

 private:
  Tensor<T> narrow_;
  Tensor<Float> wide_;
};

/// Calls f(view) with the view of the type that a weight has.
/// @{
template <class T, class F>
void with_view(const Tensor<T>& weight, F f) {
  f(weight);
}
template <class T, class F>
void with_view(const InEither<T>& weight, F f) {
  if (weight.is_float())
    f(Tensor<typename InEither<T>::Float>(weight));
  else
    f(Tensor<T>(weight));
}
/// @}

/// Whether some weights of a policy are float while all others, and activations, are in 16 bits: it is a PrecisionBy.
template <class P>
inline constexpr bool has_float_weights = requires {
  requires P::has_float_weights;
};

/// A view of weights, and of gathered weights, which are read-only.
/// @{
template <class P, class T = typename P::Compute>
using ViewOf = std::conditional_t<has_float_weights<P>, InEither<T>, Tensor<T>>;
template <class P>
using WeightView = ViewOf<P, const typename P::Compute>;
/// @}

/// The rank-local policies that modules are compiled for. Tiling is rank-local too, but a run-time value of their
/// context, so that one instantiation serves every tiling.
template <class DeviceT, class PrecisionT>
struct Local {
  using Device = DeviceT;                             ///< where tensors are and kernels run
  using Precision = PrecisionT;                       ///< the element types of weights, gradients and sums
  using Compute = typename Precision::Compute;        ///< of weights as modules see them, and of activations
  using Weight = WeightView<Precision>;               ///< a weight as modules see it
  using Accumulate = typename Precision::Accumulate;  ///< of gradients while they are summed
  using Arena = typename Device::Arena;               ///< where temporaries live
  using Frame = typename Device::Arena::Frame;        ///< frees what was allocated during its lifetime
};

/// Everything in float.
struct Fp32 {
  using Compute = float;     ///< type of weights and activations in forward and backward
  using Main = float;        ///< type of the optimizer's main weights
  using Accumulate = float;  ///< type of gradients, which are summed over tiles and micro-batches
  using Reduce = float;      ///< type of gradients as they are sent in reductions
  static constexpr std::string_view name = "fp32";
};

/// Computes in bf16; main weights, gradients and their reduction are float.
struct Bf16Mixed {
  using Compute = bf16;
  using Main = float;
  using Accumulate = float;
  using Reduce = float;
  static constexpr std::string_view name = "bf16";
};

/// Computes in f16; the rest is float. Needs a loss scale, since f16's range is small.
struct Fp16Mixed {
  using Compute = f16;
  using Main = float;
  using Accumulate = float;
  using Reduce = float;
  static constexpr std::string_view name = "fp16";
};

/// Policy P with gradients rounded to bf16 before they are sent: this halves the bytes of every reduction; sums are
/// still computed in float.
template <class P>
struct Bf16Wire : P {
  using Reduce = bf16;
  static constexpr std::string_view name = "bf16-wire";
  static std::string text() { return policy_text<P>() + ":wire=bf16"; }
};

namespace detail {
template <class P>
struct WithoutWire : std::type_identity<P> {};
template <class P>
struct WithoutWire<Bf16Wire<P>> : std::type_identity<P> {};
}  // namespace detail

/// The policy with its wire type removed. Modules use it, so that they compile once for all wire types.
template <class P>
using LocalPrecision = typename detail::WithoutWire<P>::type;

/// Requirements on a precision policy.
template <class P>
concept Precision = requires {
  typename P::Compute;
  typename P::Main;
  typename P::Accumulate;
  typename P::Reduce;
}
&&Real<typename P::Compute>;

/// Explains in static_assert messages which requirements of a precision policy a type does not meet.
template <class P>
consteval bool check_precision() {
  static_assert(
      requires { typename P::Compute; },
      "fsdp: a precision policy lacks the type Compute (weights and activations in use); add "
      "'using Compute = fsdp::bf16;' or float");
  if constexpr (requires { typename P::Compute; })
    static_assert(Real<typename P::Compute>,
                  "fsdp: a precision policy's Compute is no type of weights and activations; take float, fsdp::bf16 or "
                  "fsdp::f16");
  static_assert(
      requires { typename P::Main; },
      "fsdp: a precision policy lacks the type Main (the optimizer's weights); add 'using Main = float;'");
  static_assert(
      requires { typename P::Accumulate; },
      "fsdp: a precision policy lacks the type Accumulate (gradients being summed), so backward has nowhere to "
      "write; add 'using Accumulate = float;'");
  static_assert(
      requires { typename P::Reduce; },
      "fsdp: a precision policy lacks the type Reduce (gradients on the wire); add 'using Reduce = float;'");
  return Precision<P>;
}

/// A dynamic loss scale. It grows after `interval` finite steps, and shrinks immediately if a gradient is not finite;
/// that step is skipped. Source: Micikevicius et al. 2018; the constants are those of PyTorch's GradScaler.
class DynamicLossScale {
 public:
  /// The state that a checkpoint stores.
  struct State {
    double scale = 65536;          ///< factor of the next step's loss
    std::int64_t sound_steps = 0;  ///< number of finite steps since the scale last changed

    template <class Self, class Visitor>
    static void visit(Self& self, Visitor&& visitor) {
      visitor("scale", self.scale);
      visitor("sound_steps", self.sound_steps);
    }
    friend bool operator==(const State&, const State&) = default;
  };

  static constexpr double growth = 2;             ///< factor of the scale after `interval` finite steps
  static constexpr double backoff = 0.5;          ///< factor of the scale after a nonfinite step
  static constexpr std::int64_t interval = 2000;  ///< number of finite steps between two increases
  static constexpr double smallest = 0x1p-24;     ///< minimum scale
  static constexpr double largest = 0x1p100;      ///< maximum scale; 1 / scale must be a normal float

  DynamicLossScale() = default;
  /// Resumes from `state`. Throws InputError unless the scale is a power of two between 2^-24 and 2^100; other scales
  /// would cause rounding.
  explicit DynamicLossScale(const State& state);

  /// Returns the state for a checkpoint.
  const State& state() const { return state_; }
  /// Returns the factor for the next step's loss.
  double scale() const { return state_.scale; }

  /// Updates the scale after a step that used scale `with`; `finite` must be the same on every rank. Ignores a
  /// nonfinite step with a scale above the current one: that step was enqueued before the overflow of an earlier step
  /// was known. Throws DivergedError if a step at the smallest scale is not finite.
  void update(bool finite, double with);

 private:
  State state_;
};

}  // namespace fsdp
