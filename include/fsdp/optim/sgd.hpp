// SPDX-License-Identifier: Apache-2.0
/// @file
/// Stochastic gradient descent with momentum, optionally Nesterov's.
#pragma once

#include <array>
#include <span>
#include <string_view>

#include <tessera/fsdp/device/operation.hpp>
#include <tessera/fsdp/device/operations/sgd.hpp>
#include <tessera/fsdp/optim/optimizer.hpp>

namespace fsdp::optim {

/// g = gradient + weight_decay * w; m = momentum * m + g; w -= lr * (nesterov ? g + momentum * m : m).
/// Decay is coupled, as in PyTorch's SGD. Source: Sutskever et al. 2013.
struct Sgd {
  double momentum = 0.9;    ///< decay of the sum of gradients; with 0 there is no state
  bool nesterov = false;    ///< whether to use Nesterov momentum
  double weight_decay = 0;  ///< applied to parameters with weight decay

  static constexpr std::string_view name() { return "sgd"; }
  static constexpr Grain grain() { return Grain::elements; }
  static constexpr bool reads_decay = true;  ///< from Parameter::decay_of

  std::span<const std::string_view> states(const Parameter&) const {
    static constexpr std::array<std::string_view, 1> names = {"momentum"};
    return std::span<const std::string_view>(names).first(momentum == 0 ? 0 : 1);
  }

  template <class Stream, class Compute>
  void update(Stream& stream, const Update<Compute>& piece, Tensor<const device::StepDecision> decision) const {
    device::enqueue(stream, device::SgdStep<Compute>{
                                .rules = {.momentum = static_cast<float>(momentum),
                                          .nesterov = nesterov,
                                          .weight_decay = static_cast<float>(piece.parameter.decay_of(weight_decay))},
                                .step = decision,
                                .main = piece.main,
                                .momentum = piece.states.empty() ? Tensor<float>() : piece.states[0],
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
