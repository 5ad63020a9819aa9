// SPDX-License-Identifier: Apache-2.0
// The optimizer suite runs the built-in optimizers and finds the flaw of each flawed one.
#include <tessera/fsdp/testing/optimizer.hpp>

#include <vector>

#include <tessera/fsdp/training/run_time_optimizer.hpp>

#include <examples/07_own_optimizer/lion.hpp>

#include "failures.hpp"
#include "wrong_optimizers.hpp"

namespace fsdp::testing {
namespace {

struct OurOptimizers {
  static std::vector<optim::RunTimeOptimizer> optimizers() {
    return {{optim::AdamW{}},
            {optim::Sgd{.momentum = 0.9, .nesterov = true, .weight_decay = 0.1}},
            {optim::Sgd{.momentum = 0}},
            {optim::Muon{}}};
  }
};

INSTANTIATE_TYPED_TEST_SUITE_P(Ours, OptimizerSuite, OurOptimizers);
INSTANTIATE_TYPED_TEST_SUITE_P(Lion, OptimizerSuite, lion::Lion);

constexpr std::string_view first = "parameter [37, 19], a linear layer's matrix";

template <StepFlaw flaw, class Compute = float>
std::vector<std::string> steps_of() {
  return failures_of([] { check_optimizer_steps<Compute>(FlawedOptimizer<flaw>{}); });
}

TEST(OptimizerKit, AcceptsCorrectOptimizers) {
  const FlawedOptimizer<StepFlaw::none> optimizer;
  check_optimizer_steps<bf16>(optimizer);
  check_optimizer_cuts(optimizer);
  check_optimizer_replays(optimizer);
}

TEST(OptimizerKit, FindsAnUpdateThatStepsOnPadding) {
  expect_sentence(steps_of<StepFlaw::steps_on_padding>(), "the elements of its piece alone", first,
                  "main: element 1 behind its last was written");
}

TEST(OptimizerKit, FindsAnUpdateThatWritesItsGradient) {
  expect_sentence(steps_of<StepFlaw::writes_its_gradient>(), "leaves it as it is", "step 2, one thread",
                  "gradient: element 0 is");
}

TEST(OptimizerKit, FindsAnUpdateThatIgnoresSkippedSteps) {
  expect_sentence(steps_of<StepFlaw::ignores_skipped>(), "a skipped step changes nothing but `model`", first,
                  "main: element 0 is");
}

TEST(OptimizerKit, FindsAnUpdateThatDoesNotWriteTheModelWeights) {
  expect_sentence(steps_of<StepFlaw::forgets_model, bf16>(), "also where the step was skipped", "in bf16, step 1",
                  "model: element 0 is 55 instead of");
}

TEST(OptimizerKit, FindsAnUpdateThatDependsOnShardBoundaries) {
  expect_sentence(failures_of([] { check_optimizer_cuts(FlawedOptimizer<StepFlaw::depends_on_its_cut>{}); }),
                  "every element is stepped alone", "elements [0, 5) as a piece", "main: element");
}

TEST(OptimizerKit, FindsAnUpdateThatIgnoresTheGradientScale) {
  expect_sentence(failures_of([] { check_optimizer_scale(FlawedOptimizer<StepFlaw::ignores_the_scale>{}); }),
                  "a quarter of the scale", first, "main: element 0 is");
}

TEST(OptimizerKit, FindsWorkThatDiffersBetweenSteps) {
  expect_sentence(failures_of([] { check_optimizer_counts(FlawedOptimizer<StepFlaw::counts_skipped_steps>{}); }),
                  "the same work in every step", first, "the number of bytes that are moved is 0 instead of");
  expect_sentence(failures_of([] { check_optimizer_replays(FlawedOptimizer<StepFlaw::asks_the_host>{}); }),
                  "reads the decision on the device", first, "main: element");
  expect_sentence(failures_of([] { check_optimizer_replays(FlawedOptimizer<StepFlaw::keeps_state_in_itself>{}); }),
                  "captured in one step", first, "main: element");
}

TEST(OptimizerKit, FindsScratchThatDryRunsMiss) {
  expect_sentence(failures_of([] { check_optimizer_counts(FlawedOptimizer<StepFlaw::hides_its_scratch>{}); }),
                  "a dry run counts of an update", first, "the arena's peak in bytes is 0 instead of");
}

TEST(OptimizerKit, FindsUpdatesThatDoNothingOrTooMuch) {
  expect_sentence(steps_of<StepFlaw::steps_nowhere>(), "change weights", first, "no weight has changed");
  expect_sentence(steps_of<StepFlaw::divides_by_its_state>(), "give finite weights", "step 1, one thread",
                  "a weight is");
}

TEST(OptimizerKit, FindsDuplicateStateNames) {
  expect_sentence(failures_of([] { check_optimizer_names(NamesStatesAlike{}); }), "different names for the states",
                  first, "\"mean, mean\"");
}

TEST(OptimizerKit, FindsStateOutsideTheCheckpoint) {
  const AnyOptimizer optimizer(FlawedOptimizer<StepFlaw::keeps_state_in_itself>{});
  expect_sentence(failures_of([&] { check_optimizer_resumes(optimizer); }), "goes on from a checkpoint",
                  "a checkpoint after three", "the losses of the steps: element 1 is");
}

TEST(OptimizerKit, FindsShardsThatAreSteppedUnlikeTheWhole) {
  const AnyOptimizer optimizer(FlawedOptimizer<StepFlaw::depends_on_its_cut>{});
  expect_sentence(failures_of([&] { check_optimizer_on_shards(optimizer); }), "ranks that step everything", "2 ranks",
                  "element");
}

TEST(OptimizerKit, FindsAnOptimizerThatDoesNotLearn) {
  expect_sentence(failures_of([] { check_optimizer_learns(AnyOptimizer(StepsUphill{})); }),
                  "the loss on the same tokens", "learning rate 0.01", "losses from");
}

}  // namespace
}  // namespace fsdp::testing
