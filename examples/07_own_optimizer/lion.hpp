// SPDX-License-Identifier: Apache-2.0
/// @file
/// An optimizer of your own, Lion: its operation, its CPU kernel, and the type that is passed to a trainer.
///
/// w -= lr (sign(beta1 m + (1 - beta1) g) + decay w), then m = beta2 m + (1 - beta2) g; m is the running mean of
/// gradients.
/// Source: Chen et al. 2023 (Symbolic Discovery of Optimization Algorithms).
#pragma once

#include <array>
#include <cstdint>
#include <span>
#include <string_view>
#include <tuple>

#include <tessera/fsdp/core/error.hpp>
#include <tessera/fsdp/device/cpu.hpp>
#include <tessera/fsdp/optim/optimizer.hpp>

namespace lion {

/// Updates a range of elements in one pass. A skipped step writes only `model`.
template <class Model>
struct LionStep {
  static constexpr std::string_view name = "lion";

  float beta1 = 0, beta2 = 0, weight_decay = 0;
  fsdp::Tensor<const fsdp::device::StepDecision> step = {};  // [1]
  fsdp::device::MainWeights main = {};                       // [n]
  fsdp::Tensor<float> mean = {};                             // [n]
  fsdp::Tensor<const float> gradient = {};                   // [n]
  fsdp::Tensor<Model> model = {};                            // [n]; empty if the model weights are the main weights

  auto tensors() const { return std::tie(step, main, mean, gradient, model); }
  fsdp::device::Cost cost() const {
    return {.bytes = 2 * main.bytes() + 2 * mean.bytes() + gradient.bytes() + model.bytes()};
  }
  void check() const {
    const std::int64_t count = main.numel();
    fsdp::require(mean.numel() == count && gradient.numel() == count && (model.numel() == count || model.numel() == 0),
                  "lion: ", count, " weights with ", gradient.numel(), " gradients and a mean of ", mean.numel());
  }
};

template <class Model>
void run(fsdp::device::Cpu::Stream&, const LionStep<Model>& op) {
  const fsdp::device::StepDecision& step = op.step[0];
  const auto lr = static_cast<float>(step.lr);
  for (std::int64_t i = 0; i < op.main.numel(); ++i) {
    if (step.skipped == 0) {
      const float gradient = step.gradient_scale * op.gradient[i];
      const float direction = op.beta1 * op.mean[i] + (1 - op.beta1) * gradient;
      const float sign = static_cast<float>((direction > 0) - (direction < 0));
      op.main[i] -= lr * (sign + op.weight_decay * op.main[i]);
      op.mean[i] = op.beta2 * op.mean[i] + (1 - op.beta2) * gradient;
    }
    if (op.model.numel() > 0) op.model[i] = static_cast<Model>(op.main[i]);
  }
}

/// An Optimizer (see tessera/fsdp/optim/optimizer.hpp): its constants, states and update.
struct Lion {
  double beta1 = 0.9;
  double beta2 = 0.99;
  double weight_decay = 0.1;  ///< applied to parameters that decay

  static constexpr std::string_view name() { return "lion"; }
  static constexpr fsdp::optim::Grain grain() { return fsdp::optim::Grain::elements; }
  static constexpr bool reads_decay = true;  ///< of a parameter, by decay_of

  std::span<const fsdp::optim::StateSpec> states(const fsdp::Parameter&) const {
    static constexpr std::array<fsdp::optim::StateSpec, 1> all = {"mean"};
    return all;
  }

  template <class Stream, class Compute>
  void update(Stream& stream, const fsdp::optim::Update<Compute>& piece,
              fsdp::Tensor<const fsdp::device::StepDecision> decision) const {
    fsdp::device::enqueue(stream,
                          LionStep<Compute>{.beta1 = static_cast<float>(beta1),
                                            .beta2 = static_cast<float>(beta2),
                                            .weight_decay = static_cast<float>(piece.parameter.decay_of(weight_decay)),
                                            .step = decision,
                                            .main = piece.main,
                                            .mean = piece.states[0],
                                            .gradient = piece.gradient,
                                            .model = piece.model});
  }

  template <class Self, class Visitor>
  static void visit(Self& self, Visitor&& visitor) {
    visitor("beta1", self.beta1, "of the mean in the direction");
    visitor("beta2", self.beta2, "decay of the mean of gradients");
    visitor("weight-decay", self.weight_decay, "of the parameters that decay, times the learning rate");
  }
};

}  // namespace lion
