// SPDX-License-Identifier: Apache-2.0
/// @file
/// AdamW.
#pragma once

#include <array>
#include <span>
#include <string_view>

#include <tessera/fsdp/device/operation.hpp>
#include <tessera/fsdp/device/operations/adamw.hpp>
#include <tessera/fsdp/optim/optimizer.hpp>

namespace fsdp::optim {

/// AdamW with decoupled weight decay. A step is one pass that reads and writes each element once, and also writes the
/// model weights. Source: Loshchilov and Hutter 2019.
struct AdamW {
  double beta1 = 0.9;         ///< decay of the mean of gradients
  double beta2 = 0.95;        ///< decay of the mean of squared gradients
  double eps = 1e-8;          ///< added to the root of the mean square
  double weight_decay = 0.1;  ///< applied to parameters with weight decay

  static constexpr std::string_view name() { return "adamw"; }
  static constexpr Grain grain() { return Grain::elements; }
  static constexpr bool reads_decay = true;  ///< from Parameter::decay_of

  std::span<const std::string_view> states(const Parameter&) const {
    static constexpr std::array<std::string_view, 2> names = {"exp_avg", "exp_avg_sq"};
    return names;
  }

  template <class Stream, class Compute>
  void update(Stream& stream, const Update<Compute>& piece, Tensor<const device::StepDecision> decision) const {
    device::enqueue(stream, device::AdamWStep<Compute>{
                                .rules = {.beta1 = beta1,
                                          .beta2 = beta2,
                                          .eps = static_cast<float>(eps),
                                          .weight_decay = static_cast<float>(piece.parameter.decay_of(weight_decay))},
                                .step = decision,
                                .main = piece.main,
                                .first_moment = piece.states[0],
                                .second_moment = piece.states[1],
                                .gradient = piece.gradient,
                                .model = piece.model});
  }

  void validate() const;

  template <class Self, class Visitor>
  static void visit(Self& self, Visitor&& visitor) {
    visitor("beta1", self.beta1, "decay of the mean of gradients");
    visitor("beta2", self.beta2, "decay of the mean of squared gradients");
    visitor("eps", self.eps, "added to the root of the mean square");
    visitor("weight-decay", self.weight_decay, "of the parameters that decay, times the learning rate");
  }

  friend bool operator==(const AdamW&, const AdamW&) = default;
};

}  // namespace fsdp::optim
