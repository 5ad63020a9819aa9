// SPDX-License-Identifier: Apache-2.0
/// @file
/// Optimizers with one flaw each.
#pragma once

#include <array>
#include <cmath>
#include <cstdint>
#include <span>
#include <string_view>
#include <tuple>
#include <type_traits>

#include <tessera/fsdp/device/cpu.hpp>
#include <tessera/fsdp/device/meta.hpp>
#include <tessera/fsdp/optim/optimizer.hpp>

namespace fsdp::testing {

enum class StepFlaw {
  none,
  steps_on_padding,       ///< rounds up the number of elements
  ignores_skipped,        ///< updates although the step is skipped
  depends_on_its_cut,     ///< divides by the largest gradient of the shard
  forgets_model,          ///< does not write `model` in skipped steps
  ignores_the_scale,      ///< ignores the gradient scale
  writes_its_gradient,    ///< scales the gradient in place
  keeps_state_in_itself,  ///< counts its steps on the host
  asks_the_host,          ///< reads the learning rate when the step is enqueued
  counts_skipped_steps,   ///< does less work in a skipped step
  hides_its_scratch,      ///< does not report its scratch to dry runs
  steps_nowhere,          ///< the update is zero
  divides_by_its_state,   ///< divides by a state that is initially zero
};

/// The momentum update as an operation.
template <class Model>
struct FlawedStep {
  static constexpr std::string_view name = "flawed_step";

  StepFlaw flaw = StepFlaw::none;
  double factor = 1;
  Tensor<const device::StepDecision> step = {};
  device::MainWeights main = {};
  Tensor<float> momentum = {};
  Tensor<const float> gradient = {};
  Tensor<Model> model = {};

  auto tensors() const { return std::tie(step, main, momentum, gradient, model); }
  device::Cost cost() const { return {.bytes = 2 * main.bytes() + 2 * momentum.bytes() + gradient.bytes()}; }
};

template <class Model>
void run(device::Cpu::Stream&, const FlawedStep<Model>& op) {
  const device::StepDecision& step = op.step[0];
  const StepFlaw flaw = op.flaw;
  const bool padded = flaw == StepFlaw::steps_on_padding;
  const std::int64_t count = padded ? round_up(op.main.numel(), 16) : op.main.numel();
  float* const main = op.main.data();
  float largest = 1;
  if (flaw == StepFlaw::depends_on_its_cut)
    for (std::int64_t i = 0; i < count; ++i) largest = std::max(largest, 1 + std::abs(op.gradient.data()[i]));
  for (std::int64_t i = 0; i < count; ++i) {
    if (step.skipped == 0 || flaw == StepFlaw::ignores_skipped) {
      float gradient = op.gradient.data()[i] / largest;
      if (flaw != StepFlaw::ignores_the_scale) gradient *= step.gradient_scale;
      if (flaw == StepFlaw::writes_its_gradient) const_cast<float*>(op.gradient.data())[i] = gradient;
      float& momentum = op.momentum.data()[i];
      momentum = 0.9f * momentum + gradient;
      if (flaw == StepFlaw::divides_by_its_state) main[i] += gradient / (momentum - gradient);
      if (flaw == StepFlaw::steps_nowhere) continue;
      main[i] -= static_cast<float>(op.factor * (flaw == StepFlaw::asks_the_host ? 1 : step.lr)) * momentum;
    }
    if (op.model.numel() > 0 && (step.skipped == 0 || flaw != StepFlaw::forgets_model))
      op.model.data()[i] = static_cast<Model>(main[i]);
  }
}

template <StepFlaw flaw>
struct FlawedOptimizer {
  static constexpr std::string_view name() { return "flawed"; }
  static constexpr optim::Grain grain() { return optim::Grain::elements; }
  std::span<const std::string_view> states(const Parameter&) const {
    static constexpr std::array<std::string_view, 1> names = {"momentum"};
    return names;
  }
  template <class Stream, class Compute>
  void update(Stream& stream, const optim::Update<Compute>& piece, Tensor<const device::StepDecision> decision) const {
    double factor = 1;
    if constexpr (flaw == StepFlaw::keeps_state_in_itself) factor = 1 / (1 + 0.01 * static_cast<double>(++steps));
    if constexpr (flaw == StepFlaw::asks_the_host) factor = decision[0].lr;
    if constexpr (flaw == StepFlaw::counts_skipped_steps)
      if (decision[0].skipped != 0) return;
    using Arena = std::remove_reference_t<decltype(stream.arena())>;
    typename Arena::Frame frame(stream.arena());
    if constexpr (flaw == StepFlaw::hides_its_scratch && !std::is_same_v<Stream, device::Meta::Stream>)
      frame.template allocate<float>(piece.main.shape(), device::MemoryKind::scratch);
    device::enqueue(stream, FlawedStep<Compute>{.flaw = flaw,
                                                .factor = factor,
                                                .step = decision,
                                                .main = piece.main,
                                                .momentum = piece.states[0],
                                                .gradient = piece.gradient,
                                                .model = piece.model});
  }
  template <class Self, class Visitor>
  static void visit(Self&, Visitor&&) {}

  mutable std::int64_t steps = 0;
};

/// Two states with the same name.
struct NamesStatesAlike : FlawedOptimizer<StepFlaw::none> {
  std::span<const std::string_view> states(const Parameter&) const {
    static constexpr std::array<std::string_view, 2> names = {"mean", "mean"};
    return names;
  }
};

/// Updates with the wrong sign, so that the loss increases.
struct StepsUphill : FlawedOptimizer<StepFlaw::none> {
  template <class Stream, class Compute>
  void update(Stream& stream, const optim::Update<Compute>& piece, Tensor<const device::StepDecision> decision) const {
    device::enqueue(stream, FlawedStep<Compute>{.factor = -1,
                                                .step = decision,
                                                .main = piece.main,
                                                .momentum = piece.states[0],
                                                .gradient = piece.gradient,
                                                .model = piece.model});
  }
};

}  // namespace fsdp::testing
