// SPDX-License-Identifier: Apache-2.0
/// @file
/// The concept of an optimizer, and the elementwise optimizers AdamW and Sgd.
#pragma once

#include <algorithm>
#include <array>
#include <concepts>
#include <cstddef>
#include <cstdint>
#include <numeric>
#include <span>
#include <string_view>
#include <utility>
#include <vector>

#include <tessera/fsdp/core/has_member.hpp>
#include <tessera/fsdp/core/lists.hpp>
#include <tessera/fsdp/core/tensor.hpp>
#include <tessera/fsdp/device/operation.hpp>
#include <tessera/fsdp/device/operations/codec.hpp>
#include <tessera/fsdp/device/operations/elements.hpp>
#include <tessera/fsdp/device/operations/optimizer.hpp>
#include <tessera/fsdp/module/units.hpp>
#include <tessera/fsdp/optim/state.hpp>

namespace fsdp {
class ModuleState;  // tessera/fsdp/module/module_plan.hpp
}

namespace fsdp::optim {

struct RunTimeOptimizer;  // tessera/fsdp/training/run_time_optimizer.hpp: the default, for programs whose flags select
                          // the optimizer

/// The unit of a parameter that one update needs.
enum class Grain : std::uint8_t {
  elements,  ///< any range of elements
  tensors,   ///< whole blocks; by default a block is the whole parameter
};

/// A piece of a parameter that one update steps: the whole parameter in its shape, or a range of its elements [n],
/// which consists of whole blocks if the optimizer states a block.
template <class Compute>
struct Update {
  const Parameter& parameter;     ///< the parameter that has the piece
  Tensor<float> main;             ///< main weights, stepped in place
  std::span<const State> states;  ///< in the order of states(parameter)
  Tensor<const float> gradient;   ///< multiply by `decision.gradient_scale` to get the step's gradient
  Tensor<Compute> model;          ///< output: the updated weights, rounded; empty if `main` is the same memory
  std::int64_t first = 0;         ///< index of the piece's first element in the parameter
};

namespace detail {

template <class O>
concept Named = requires(const O& optimizer) {
  { optimizer.name() } -> std::convertible_to<std::string_view>;
};

template <class O>
concept HasGrain = requires(const O& optimizer) {
  { optimizer.grain() } -> std::same_as<Grain>;
};

template <class O>
concept HasStates = requires(const O& optimizer, const Parameter& parameter) {
  { optimizer.states(parameter) } -> std::convertible_to<std::span<const StateSpec>>;
};

struct AnyConstant {
  template <class T>
  void operator()(std::string_view, T&, std::string_view) const {}
};

template <class O>
concept Visited = requires(O& optimizer, const O& constant) {
  O::visit(optimizer, AnyConstant{});
  O::visit(constant, AnyConstant{});
};

FSDP_HAS_MEMBER(validate)
FSDP_HAS_MEMBER(work)
FSDP_HAS_MEMBER(block)
FSDP_HAS_MEMBER(step_work)

}  // namespace detail

/// An optimizer: a value that contains constants, lists the names of its states, and updates a rank's piece of a
/// parameter. It has
/// - `name()`: its name in logs, checkpoints and `--optimizer`;
/// - `grain()`: Grain::elements if every element is stepped independently, Grain::tensors if it needs whole tensors;
/// - `states(parameter)`: names and formats of a parameter's states (StateSpec). A state has a number for each element
///   of the parameter, initially zero. A name alone is a state of float;
/// - `update(stream, piece, decision)`: enqueues one step of a piece (Update). It is called for every trainable piece
///   in every step. It enqueues the same work in every step, since graphs replay it, and reads the step's number, the
///   learning rate and the gradients' scale from `decision`, on the device. If `decision.skipped`, only `piece.model`
///   may change;
/// - `static visit(self, visitor)`: calls `visitor(name, value, help)` for each constant of `self`, a const or mutable
///   optimizer. Flags and logs are derived from them.
/// It may also have `validate()`, which throws InputError for an invalid constant; `work(parameter)`, the cost of
/// stepping a whole parameter, which buffer::Owned balances over ranks (default: the number of elements); and
/// `block(parameter)`, the number of consecutive elements, counted from the parameter's first, that it needs on one
/// rank, 0 if it steps any range (default: 0, and with Grain::tensors the whole parameter). Layouts that cut inside of
/// a block are refused. Instead it may have `step_work()`, which returns both as a StepWork. With `static constexpr
/// bool reads_decay = true` it reads each parameter's weight decay from Parameter::decay_of, so that groups of
/// parameters may set a weight decay (OptimizerGroup); with other optimizers, groups may only set it to 0. An optimizer
/// has no access to communicators and gathered weights. ShardedOptimizer (sharded_optimizer.hpp) applies it to a
/// module.
template <class O>
concept Optimizer =
    std::copyable<O> && detail::Named<O> && detail::HasGrain<O> && detail::HasStates<O> && detail::Visited<O>;

/// Whether an optimizer can update `Compute` weights on a device's stream.
template <class O, class Stream, class Compute>
concept Updates = requires(const O& optimizer, Stream& stream, const Update<Compute>& piece,
                           Tensor<const device::StepDecision> decision) {
  optimizer.update(stream, piece, decision);
};

/// Whether an optimizer's type requires whole tensors. An optimizer that contains one of several kinds determines it at
/// run time.
template <class O>
inline constexpr bool needs_whole_tensors = false;
template <class O>
requires requires { typename std::bool_constant<(O::grain(), true)>; }
inline constexpr bool needs_whole_tensors<O> = O::grain() == Grain::tensors;

/// Whether an optimizer reads weight decays from Parameter::decay_of.
template <class O>
inline constexpr bool reads_decay = requires {
  requires O::reads_decay;
};

/// Returns what layouts use of an optimizer: its own functions, or the number of elements as the cost, and whole
/// parameters as blocks with Grain::tensors. Blocks consist of whole blocks of the states' formats. The result has a
/// copy of the optimizer.
template <class O>
StepWork step_work(const O& optimizer) {
  StepWork step;
  if constexpr (detail::has_step_work<O>())
    step = optimizer.step_work();
  else if constexpr (detail::has_work<O>())
    step.cost = [optimizer](const Parameter& parameter) { return optimizer.work(parameter); };
  if constexpr (detail::has_block<O>())
    step.block = [optimizer](const Parameter& parameter) { return optimizer.block(parameter); };
  else if (optimizer.grain() == Grain::tensors && step.block == nullptr)
    step.block = elementwise_work;
  step.block = [optimizer, own = std::move(step.block)](const Parameter& parameter) {
    std::int64_t block = own == nullptr ? 0 : own(parameter);
    for (const StateSpec& state : optimizer.states(parameter))
      if (const std::int64_t coded = state.format->block; coded > 1)
        block = std::lcm(std::max<std::int64_t>(block, 1), coded);
    return block;
  };
  return step;
}

/// Throws InputError, which reports the optimizer, if two of a parameter's states have the same name, a name is empty
/// or has a dot, or bytes of a codec other than Plain are not words of 4 bytes.
void require_state_names(std::string_view optimizer, const Parameter& parameter, std::span<const StateSpec> states);

/// Throws InputError if a group of parameters sets a weight decay, which the optimizer would ignore.
void require_no_decays(std::string_view optimizer, GroupList groups);

/// Throws InputError if the layout of one of the module's parameters cuts inside of a block of the optimizer.
void require_blocks(std::string_view optimizer, const ModuleState& module, const StepWork& step);

/// The placement of the states of a rank's piece of a parameter.
struct StatePiece {
  std::int64_t resting = 0;                ///< index of its first element among all trained elements
  std::int64_t count = 0;                  ///< number of its elements
  std::span<const StateSpec> states = {};  ///< empty if it is frozen
  bool trainable = true;                   ///< whether it is trained
};
/// The layout of one state's block: the pieces that have the state, one after the other, in the order of the sharded
/// gradients. States of float have the padding of the gradients.
struct StatePlaces {
  std::vector<std::int64_t> starts;  ///< [pieces]; the first byte of each
  std::int64_t bytes = 0;            ///< number of bytes of the block
};
/// Returns the layout of the block of state number `state`. `trained`: number of elements of all trained pieces,
/// padding included.
StatePlaces places_of(std::span<const StatePiece> pieces, std::size_t state, std::int64_t trained);

/// Throws InputError unless `holds`. The message contains the constant's flag, its value, and the valid range.
void require_constant(bool holds, std::string_view name, double value, std::string_view range);

/// Gives a readable compile error for each requirement of an optimizer that a type does not meet. Call it where the
/// type is first used.
template <class O>
consteval bool check_optimizer() {
  static_assert(
      requires { sizeof(O); },
      "fsdp: an optimizer's type is incomplete; include its header, which for the default, optim::RunTimeOptimizer, is "
      "tessera/fsdp/training/run_time_optimizer.hpp");
  static_assert(detail::Named<O>,
                "fsdp: an optimizer lacks its name, which checkpoints and logs hold; give it static constexpr "
                "std::string_view name()");
  static_assert(detail::HasGrain<O>,
                "fsdp: an optimizer does not say what it must see of a parameter; give it static constexpr "
                "optim::Grain grain(), which is Grain::elements or, where it needs whole matrices, Grain::tensors");
  static_assert(detail::HasStates<O>,
                "fsdp: an optimizer does not name its states; give it states(const Parameter&) const, which "
                "returns a std::span<const optim::StateSpec>, empty where it keeps none");
  static_assert(detail::Visited<O>,
                "fsdp: an optimizer does not show its constants; give it template <class S, class V> "
                "static void visit(S& self, V&& visitor), which calls visitor(name, value, help) for each of self");
  static_assert(std::copyable<O>, "fsdp: an optimizer is a value; make it copyable");
  static_assert(
      !detail::has_validate<O>() || requires(const O& optimizer) { optimizer.validate(); },
      "fsdp: an optimizer has a validate that is no void validate() const, so that invalid constants would be used");
  static_assert(
      !detail::has_step_work<O>() ||
          requires(const O& optimizer) {
            { optimizer.step_work() } -> std::same_as<StepWork>;
          },
      "fsdp: an optimizer has a step_work that is no StepWork step_work() const; see tessera/fsdp/optim/optimizer.hpp");
  static_assert(
      !detail::has_work<O>() ||
          requires(const O& optimizer, const Parameter& parameter) {
            { optimizer.work(parameter) } -> std::same_as<std::int64_t>;
          },
      "fsdp: an optimizer has a work that is no std::int64_t work(const Parameter&) const, the cost of stepping a "
      "whole parameter");
  static_assert(
      !detail::has_block<O>() ||
          requires(const O& optimizer, const Parameter& parameter) {
            { optimizer.block(parameter) } -> std::same_as<std::int64_t>;
          },
      "fsdp: an optimizer has a block that is no std::int64_t block(const Parameter&) const, the number of elements "
      "that it needs on one rank");
  return Optimizer<O>;
}

/// How AdamW stores both moments of a tensor of at least `least_coded` elements; smaller ones are float. `bf16` rounds
/// the second stochastically. `dynamic8`: blocks of 256 elements in 8 bits (Dynamic8), which ranks must not cut.
enum class Moments : std::uint8_t { float32, bf16, dynamic8 };
/// The names of the values.
inline constexpr std::array<std::string_view, 3> moments_names = {"float", "bf16", "dynamic8"};
/// Returns the names of the values, for flags.
constexpr std::span<const std::string_view> value_names(Moments) { return moments_names; }

/// AdamW with decoupled weight decay. A step is one pass that reads and writes each element once, and also writes the
/// model weights. Source: Loshchilov and Hutter 2019; 8-bit moments are from Dettmers et al. 2022.
struct AdamW {
  double beta1 = 0.9;                  ///< decay of the mean of gradients
  double beta2 = 0.95;                 ///< decay of the mean of squared gradients
  double eps = 1e-8;                   ///< added to the root of the mean square
  double weight_decay = 0.1;           ///< applied to parameters with weight decay
  Moments moments = Moments::float32;  ///< how both moments are stored

  static constexpr std::int64_t least_coded = 4096;  ///< elements of a tensor whose moments are encoded, at least
  static constexpr std::string_view name() { return "adamw"; }
  static constexpr Grain grain() { return Grain::elements; }
  static constexpr bool reads_decay = true;  ///< from Parameter::decay_of

  std::span<const StateSpec> states(const Parameter& parameter) const;

  template <class Stream, class Compute>
  void update(Stream& stream, const Update<Compute>& piece, Tensor<const device::StepDecision> decision) const {
    const device::AdamWRules rules{.beta1 = beta1,
                                   .beta2 = beta2,
                                   .eps = static_cast<float>(eps),
                                   .weight_decay = static_cast<float>(piece.parameter.decay_of(weight_decay))};
    const State &first = piece.states[0], &second = piece.states[1];
    if (first.format().type == DType::f32)
      return device::enqueue(stream, device::AdamWStep<Compute>{.rules = rules,
                                                                .step = decision,
                                                                .main = piece.main,
                                                                .first_moment = first,
                                                                .second_moment = second,
                                                                .gradient = piece.gradient,
                                                                .model = piece.model});
    device::enqueue(stream,
                    device::CodedAdamWStep<Compute>{
                        .rules = rules,
                        .step = decision,
                        .main = piece.main,
                        .first_moment = first.bytes(),
                        .second_moment = second.bytes(),
                        .form = moments == Moments::bf16 ? device::MomentForm::bf16 : device::MomentForm::dynamic8,
                        .gradient = piece.gradient,
                        .model = piece.model,
                        .draw = {.key = device::digest_key(piece.parameter.name), .first = piece.first}});
  }

  void validate() const;

  template <class Self, class Visitor>
  static void visit(Self& self, Visitor&& visitor) {
    visitor("beta1", self.beta1, "decay of the mean of gradients");
    visitor("beta2", self.beta2, "decay of the mean of squared gradients");
    visitor("eps", self.eps, "added to the root of the mean square");
    visitor("weight-decay", self.weight_decay, "of the parameters that decay, times the learning rate");
    visitor("moments", self.moments, "format of both moments, float | bf16 | dynamic8; below 4096 elements float");
  }

  friend bool operator==(const AdamW&, const AdamW&) = default;
};

/// g = gradient + weight_decay * w; m = momentum * m + g; w -= lr * (nesterov ? g + momentum * m : m).
/// Decay is coupled, as in PyTorch's SGD. Source: Sutskever et al. 2013.
struct Sgd {
  double momentum = 0.9;    ///< decay of the sum of gradients; with 0 there is no state
  bool nesterov = false;    ///< whether to use Nesterov momentum
  double weight_decay = 0;  ///< applied to parameters with weight decay

  static constexpr std::string_view name() { return "sgd"; }
  static constexpr Grain grain() { return Grain::elements; }
  static constexpr bool reads_decay = true;  ///< from Parameter::decay_of

  std::span<const StateSpec> states(const Parameter&) const {
    static constexpr std::array<StateSpec, 1> all = {"momentum"};
    return std::span<const StateSpec>(all).first(momentum == 0 ? 0 : 1);
  }

  template <class Stream, class Compute>
  void update(Stream& stream, const Update<Compute>& piece, Tensor<const device::StepDecision> decision) const {
    device::enqueue(stream, device::SgdStep<Compute>{
                                .rules = {.momentum = static_cast<float>(momentum),
                                          .nesterov = nesterov,
                                          .weight_decay = static_cast<float>(piece.parameter.decay_of(weight_decay))},
                                .step = decision,
                                .main = piece.main,
                                .momentum = piece.states.empty() ? Tensor<float>() : Tensor<float>(piece.states[0]),
                                .gradient = piece.gradient,
                                .model = piece.model});
  }

  void validate() const;

  template <class Self, class Visitor>
  static void visit(Self& self, Visitor&& visitor) {
    visitor("momentum", self.momentum, "decay of the sum of gradients; 0 keeps none");
    visitor("nesterov", self.nesterov, "look ahead along the momentum");
    visitor("weight-decay", self.weight_decay, "of the parameters that decay, added to their gradients");
  }

  friend bool operator==(const Sgd&, const Sgd&) = default;
};

}  // namespace fsdp::optim

// Compiled into the library.
FSDP_LIST(fsdp::optim::StatePiece)
