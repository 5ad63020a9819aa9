// SPDX-License-Identifier: Apache-2.0
// The kit's suite for user-defined loops accepts the U-Net and finds the flaw of each flawed loop.
#include <tessera/fsdp/testing/foreign_loop.hpp>

#include <string>
#include <vector>

#include "networks.hpp"
#include "testing/failures.hpp"
#include "wrong_loops.hpp"

namespace fsdp::foreign {
namespace {

struct UnetLoop {
  static std::vector<Unit> units() { return unet_network().units; }
  static Order order() { return unet_network().order; }
  static UnitOptions unit_options() { return {.frozen = {"middle.beta"}}; }
  template <class Pass>
  static double compute(Pass& pass, int step, int piece, int pieces) {
    static const auto compute_in_float = unet_network().compute;
    AnyPass any = any_pass(pass);
    return compute_in_float(any, step, piece, pieces);
  }
};

}  // namespace
}  // namespace fsdp::foreign

namespace fsdp::testing {

INSTANTIATE_TYPED_TEST_SUITE_P(Unet, ForeignLoopSuite, foreign::UnetLoop);
INSTANTIATE_TYPED_TEST_SUITE_P(Small, ForeignLoopSuite, foreign::FlawedLoop);

namespace {

using foreign::FlawedLoop;
using foreign::LoopFlaw;

std::vector<std::string> failures_with(LoopFlaw flaw, void (*check)()) {
  FlawedLoop::flaw = flaw;
  const auto messages = failures_of(check);
  FlawedLoop::flaw = LoopFlaw::none;
  return messages;
}

TEST(ForeignLoopKit, FindsALoopThatOverwritesGradients) {
  expect_sentence(failures_with(LoopFlaw::overwrites, check_foreign_strategies<FlawedLoop>), "one rank, and strategies",
                  "1 rank, 6 micro-batches, fsdp2", "the loss of step 1 is");
}

TEST(ForeignLoopKit, FindsALoopThatIsNotAPureFunctionOfItsArguments) {
  expect_sentence(failures_with(LoopFlaw::counts_calls, check_foreign_strategies<FlawedLoop>),
                  "one rank, and strategies", "1 rank, 6 micro-batches, fsdp2", "the loss of step 0 is");
}

TEST(ForeignLoopKit, FindsAMissingGradient) {
  expect_sentence(failures_with(LoopFlaw::forgets_a_gradient, check_foreign_gradients<FlawedLoop>),
                  "three steps change every tensor", "2 ranks, 1 micro-batch, fsdp2", "b is as it was");
}

TEST(ForeignLoopKit, FindsLossesDividedByTheSamplesOfThePiece) {
  for (const LoopFlaw flaw : {LoopFlaw::divides_by_its_own, LoopFlaw::divides_loss_alone})
    expect_sentence(failures_with(flaw, check_foreign_shares<FlawedLoop>), "not by those of the piece",
                    "1 rank, 2 pieces", "the loss of the first piece is 0.");
}

/// The 12 samples of a step, distributed over its pieces; one piece has more samples than the others.
template <bool shares_out>
struct UnevenLoop {
  static std::vector<Unit> units() { return {{.name = "all", .parameters = {{.name = "w", .shape = {3}}}}}; }
  template <class Pass>
  static double compute(Pass& pass, int, int piece, int pieces) {
    const int own = shares_out ? 12 / pieces : 2 + piece, all = shares_out ? 12 : pieces * (pieces + 3) / 2;
    double loss = 0;
    float of_w[3] = {};
    {
      const auto use = pass.forward(0);
      for (int sample = 0; sample < own; ++sample)
        for (int i = 0; i < 3; ++i) {
          const int number = shares_out ? piece * own + sample : 100 * piece + sample;
          const float error = use.weight(0).data()[i] - static_cast<float>(number + i) / 8;
          loss += 0.5 * static_cast<double>(error * error) / all;
          of_w[i] += error / static_cast<float>(all);
        }
    }
    const auto use = pass.backward(0);
    const auto gradient = use.gradient(0);
    const Write write = gradient.next();
    for (int i = 0; i < 3; ++i) FlawedLoop::put(gradient, i, of_w[i], write);
    return loss;
  }
};
TEST(ForeignLoopKit, AcceptsPiecesOfAnySize) {
  EXPECT_EQ(failures_of(check_foreign_shares<UnevenLoop<true>>), std::vector<std::string>{});
  EXPECT_EQ(failures_of(check_foreign_shares<UnevenLoop<false>>), std::vector<std::string>{});
}

TEST(ForeignLoopKit, FindsAUnitThatCannotBeFrozen) {
  expect_sentence(failures_with(LoopFlaw::stops_at_frozen, check_foreign_gradients<FlawedLoop>),
                  "whichever unit a setting freezes", "2 ranks, 1 micro-batch, fsdp2, frozen second", "a is as it was");
}

TEST(ForeignLoopKit, FindsAnOmittedComputation) {
  expect_sentence(failures_with(LoopFlaw::leaves_out_a_unit, check_foreign_gradients<FlawedLoop>),
                  "trains without an error", "2 ranks, 1 micro-batch, fsdp2",
                  "pass: finished before backward second of micro-batch 0");
}

TEST(ForeignLoopKit, FindsMemoryThatDiffersFromThePlan) {
  expect_sentence(failures_with(LoopFlaw::declares_more, check_foreign_bytes<FlawedLoop>),
                  "as many bytes of every kind as its dry run planned", "1 rank, 2 micro-batches, fsdp2, rank 0",
                  "weights is ");
}

TEST(ForeignLoopKit, FindsALoopThatAnExceptionLeavesInconsistent) {
  expect_sentence(failures_with(LoopFlaw::keeps_activations, check_foreign_exceptions<FlawedLoop>),
                  "a step that is made again", "computation 1 of step 1 throws on all ranks", "element 1 is");
}

TEST(ForeignLoopKit, FindsALoopThatAForfeitLeavesInconsistent) {
  expect_sentence(failures_with(LoopFlaw::keeps_activations, check_foreign_forfeits<FlawedLoop>),
                  "a step that a rank forfeits is skipped", "computation 1 of step 1 throws on rank 0, which forfeits",
                  "element 1 is");
}

}  // namespace
}  // namespace fsdp::testing
