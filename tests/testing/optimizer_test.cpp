// SPDX-License-Identifier: Apache-2.0
// The optimizer suite runs the built-in optimizers and finds the flaw of each flawed one.
#include <tessera/fsdp/testing/optimizer.hpp>

#include <array>
#include <cmath>
#include <cstdint>
#include <span>
#include <string_view>
#include <tuple>
#include <type_traits>
#include <vector>

#include <examples/07_own_optimizer/lion.hpp>
#include <tessera/fsdp/device/cpu.hpp>
#include <tessera/fsdp/device/meta.hpp>
#include <tessera/fsdp/optim/optimizer.hpp>
#include <tessera/fsdp/training/run_time_optimizer.hpp>

#include "failures.hpp"

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
  names_states_alike,     ///< has two states of one name
  steps_uphill,           ///< updates with the wrong sign, so that the loss increases
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

struct FlawedOptimizer {
  StepFlaw flaw = StepFlaw::none;

  static constexpr std::string_view name() { return "flawed"; }
  static constexpr optim::Grain grain() { return optim::Grain::elements; }
  std::span<const optim::StateSpec> states(const Parameter&) const {
    static constexpr std::array<optim::StateSpec, 2> all = {"momentum", "momentum"};
    return std::span(all).first(flaw == StepFlaw::names_states_alike ? 2 : 1);
  }
  template <class Stream, class Compute>
  void update(Stream& stream, const optim::Update<Compute>& piece, Tensor<const device::StepDecision> decision) const {
    double factor = flaw == StepFlaw::steps_uphill ? -1 : 1;
    if (flaw == StepFlaw::keeps_state_in_itself) factor = 1 / (1 + 0.01 * static_cast<double>(++steps));
    if (flaw == StepFlaw::asks_the_host) factor = decision[0].lr;
    if (flaw == StepFlaw::counts_skipped_steps && decision[0].skipped != 0) return;
    using Arena = std::remove_reference_t<decltype(stream.arena())>;
    typename Arena::Frame frame(stream.arena());
    if (flaw == StepFlaw::hides_its_scratch && !std::is_same_v<Stream, device::Meta::Stream>)
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

namespace {

struct OurOptimizers {
  static std::vector<optim::RunTimeOptimizer> optimizers() {
    return {{optim::AdamW{}},
            {optim::Sgd{.momentum = 0.9, .nesterov = true, .weight_decay = 0.1}},
            {optim::Sgd{.momentum = 0}},
            {optim::Muon{}},
            {optim::Muon{.per_head = true}},
            {optim::AdamW{.moments = optim::Moments::bf16}},
            {optim::AdamW{.moments = optim::Moments::dynamic8}},
            {optim::Muon{.adamw = {.moments = optim::Moments::dynamic8}}}};
  }
};

INSTANTIATE_TYPED_TEST_SUITE_P(Ours, OptimizerSuite, OurOptimizers);
INSTANTIATE_TYPED_TEST_SUITE_P(Lion, OptimizerSuite, lion::Lion);

constexpr std::string_view first = "parameter [37, 19], a linear layer's matrix";

/// The failures that `check` reports for the optimizer with this flaw.
std::vector<std::string> failures_with(StepFlaw flaw, void (*check)(const FlawedOptimizer&)) {
  return failures_of([&] { check(FlawedOptimizer{flaw}); });
}
template <class Compute = float>
std::vector<std::string> steps_of(StepFlaw flaw) {
  return failures_with(flaw, check_optimizer_steps<Compute>);
}

TEST(OptimizerKit, AcceptsCorrectOptimizers) {
  const FlawedOptimizer optimizer;
  check_optimizer_steps<bf16>(optimizer);
  check_optimizer_cuts(optimizer);
  check_optimizer_replays(optimizer);
}

TEST(OptimizerKit, FindsAnUpdateThatStepsOnPadding) {
  expect_sentence(steps_of(StepFlaw::steps_on_padding), "the elements of its piece alone", first,
                  "main: element 1 behind its last was written");
}

TEST(OptimizerKit, FindsAnUpdateThatWritesItsGradient) {
  expect_sentence(steps_of(StepFlaw::writes_its_gradient), "leaves it as it is", "step 2, one thread",
                  "gradient: element 0 is");
}

TEST(OptimizerKit, FindsAnUpdateThatIgnoresSkippedSteps) {
  expect_sentence(steps_of(StepFlaw::ignores_skipped), "a skipped step changes nothing but `model`", first,
                  "main: element 0 is");
}

TEST(OptimizerKit, FindsAnUpdateThatDoesNotWriteTheModelWeights) {
  expect_sentence(steps_of<bf16>(StepFlaw::forgets_model), "also where the step was skipped", "in bf16, step 1",
                  "model: element 0 is 55 instead of");
}

TEST(OptimizerKit, FindsAnUpdateThatDependsOnShardBoundaries) {
  expect_sentence(failures_with(StepFlaw::depends_on_its_cut, check_optimizer_cuts),
                  "an optimizer steps every element alone", "elements [0, 5) as a piece", "main: element");
}

TEST(OptimizerKit, FindsAnUpdateThatIgnoresTheGradientScale) {
  expect_sentence(failures_with(StepFlaw::ignores_the_scale, check_optimizer_scale), "a quarter of the scale", first,
                  "main: element 0 is");
}

TEST(OptimizerKit, FindsWorkThatDiffersBetweenSteps) {
  expect_sentence(failures_with(StepFlaw::counts_skipped_steps, check_optimizer_counts), "the same work in every step",
                  first, "the number of bytes that are moved is 0 instead of");
  expect_sentence(failures_with(StepFlaw::asks_the_host, check_optimizer_replays), "reads the decision on the device",
                  first, "main: element");
  expect_sentence(failures_with(StepFlaw::keeps_state_in_itself, check_optimizer_replays), "captured in one step",
                  first, "main: element");
}

TEST(OptimizerKit, FindsScratchThatDryRunsMiss) {
  expect_sentence(failures_with(StepFlaw::hides_its_scratch, check_optimizer_counts), "a dry run counts of an update",
                  first, "the arena's peak in bytes is 0 instead of");
}

TEST(OptimizerKit, FindsUpdatesThatDoNothingOrTooMuch) {
  expect_sentence(steps_of(StepFlaw::steps_nowhere), "change weights", first, "no weight has changed");
  expect_sentence(steps_of(StepFlaw::divides_by_its_state), "give finite weights", "step 1, one thread", "a weight is");
}

TEST(OptimizerKit, FindsDuplicateStateNames) {
  expect_sentence(failures_with(StepFlaw::names_states_alike, check_optimizer_names), "different names for the states",
                  first, "\"momentum, momentum\"");
}

TEST(OptimizerKit, FindsStateOutsideTheCheckpoint) {
  const AnyOptimizer optimizer(FlawedOptimizer{StepFlaw::keeps_state_in_itself});
  expect_failure([&] { check_optimizer_resumes(optimizer); }, "goes on from a checkpoint", "a checkpoint after three",
                 "the losses of the steps: element 1 is");
}

TEST(OptimizerKit, FindsShardsThatAreSteppedUnlikeTheWhole) {
  const AnyOptimizer optimizer(FlawedOptimizer{StepFlaw::depends_on_its_cut});
  expect_failure([&] { check_optimizer_on_shards(optimizer); }, "ranks that step everything", "2 ranks", "element");
}

TEST(OptimizerKit, FindsAnOptimizerThatDoesNotLearn) {
  expect_failure([] { check_optimizer_learns(AnyOptimizer(FlawedOptimizer{StepFlaw::steps_uphill})); },
                 "the loss on the same tokens", "learning rate 0.01", "losses from");
}

}  // namespace
}  // namespace fsdp::testing
