// SPDX-License-Identifier: Apache-2.0
#include <algorithm>
#include <limits>
#include <utility>
#include <vector>

#include "steps.hpp"

namespace fsdp::device {
namespace {

using namespace reference;

template <class Model>
class Optimizers : public ::testing::Test {};
using Types = ::testing::Types<float, bf16>;
TYPED_TEST_SUITE(Optimizers, Types);

TYPED_TEST(Optimizers, MatchTheReferenceAndRoundModelWeightsOnce) {
  for (const Case& c : Rank::variants()) {
    for (const std::int64_t count : {1, 3, 7, 15, 16, 257, 20011}) {
      expect_adamw<TypeParam, Rank>(c, count);
      expect_sgd<TypeParam, Rank>(c, count);
    }
    for (const std::int64_t count : {1, 33, 20011}) expect_muon<TypeParam, Rank>(c, count);
  }
}

TYPED_TEST(Optimizers, WriteOnlyModelWeightsInASkippedStep) {
  for (const Case& c : Rank::variants()) expect_skipped_steps<TypeParam, Rank>(c, 20011);
}

TEST(AdamW, FirstStepIsTheLearningRateForAnyBetas) {
  for (const double beta2 : {0.0, 0.95, 0.99, 0.999, 0.9999, 0.99999}) {
    Rank rank(1);
    std::vector<float> w(16), m(16), v(16), g(16);
    std::ranges::generate(g, [i = 0]() mutable { return i++ % 2 == 0 ? 2.0f : -0.5f; });
    const StepDecision step{.taken = 1, .lr = 0.01};
    enqueue(rank.stream, AdamWStep<float>{.rules = {.beta1 = beta2 / 1.001, .beta2 = beta2},
                                          .step = {&step, {1}},
                                          .main = Tensor<float>(w.data(), {16}),
                                          .first_moment = {m.data(), {16}},
                                          .second_moment = {v.data(), {16}},
                                          .gradient = {g.data(), {16}}});
    for (auto at = g.begin(); const float weight : w)
      EXPECT_NEAR(static_cast<double>(weight) / (*at++ > 0 ? -0.01 : 0.01), 1, 1e-6) << beta2;
  }
}

TEST(AdamW, WithoutModelWeightsGivesTheSameMainWeights) {
  const auto weights = []<class Model>(Model) {
    Stepped<Model, Rank> s({.threads = 2}, 257);
    enqueue(s.rank.stream, AdamWStep<Model>{.step = s.decision,
                                            .main = s.w.tensor(),
                                            .first_moment = s.m,
                                            .second_moment = s.v,
                                            .gradient = s.g,
                                            .model = s.written()});
    return s.w.values();
  };
  EXPECT_EQ(weights(float()), weights(bf16()));
}

/// Cpu's decision from sums of shape [ranks, columns].
StepDecision decided(const StepRules& run, const StepInputs& inputs, const std::vector<double>& sums,
                     StepDecision step = {}, std::int64_t columns = 2) {
  Rank rank(1);
  return reference::decided(rank, {.rules = run}, inputs, {.sums = sums, .ranks = std::ssize(sums) / columns}, step);
}

TEST(DecideStep, AddsTheSumsOfRanksAndClips) {
  const StepInputs inputs{.lr = 0.01, .loss_scale = 8};
  const StepDecision step = decided({.clip = 0.5}, inputs, {1, 64, 2, 128, 4, 64}, {.taken = 2});
  EXPECT_EQ(step.loss, 7);
  EXPECT_EQ(step.norm, 2);
  EXPECT_EQ(step.taken, 3);
  EXPECT_EQ(step.lr, 0.01);
  EXPECT_EQ(step.gradient_scale, static_cast<float>(0.5 / (2 + 1e-6) / 8));
  EXPECT_EQ(step.skipped + step.stopped, 0);
  EXPECT_EQ(decided({}, inputs, {1, 64}).gradient_scale, 0.125f);
  EXPECT_EQ(decided({.clip = 5}, inputs, {1, 64}).gradient_scale, 0.125f);
}

TEST(DecideStep, NonFiniteGradientsSkipTheStepOrStopTraining) {
  constexpr double nan = std::numeric_limits<double>::quiet_NaN(), inf = std::numeric_limits<double>::infinity();
  for (const double bad : {nan, inf}) {
    const StepDecision skipped = decided({.skips_overflow = true}, {.lr = 1}, {1, 1, 1, bad}, {.taken = 5});
    EXPECT_EQ(skipped.skipped, 1);
    EXPECT_EQ(skipped.stopped, 0);
    EXPECT_EQ(skipped.taken, 5);
    const StepDecision next = decided({.skips_overflow = true}, {.lr = 1}, {1, 1}, skipped);
    EXPECT_EQ(next.skipped, 0);
    EXPECT_EQ(next.taken, 6);

    for (const bool skips_overflow : {false, true}) {  // a non-finite loss stops training in either case
      const StepDecision stopped =
          decided({.skips_overflow = skips_overflow}, {.lr = 1}, {1, 1, bad, skips_overflow ? 1 : bad});
      EXPECT_EQ(stopped.stopped, 1);
      EXPECT_EQ(decided({.skips_overflow = skips_overflow}, {.lr = 1}, {1, 1}, stopped).skipped, 1);
    }
  }
  EXPECT_EQ(decided({}, {.lr = 1}, {1, nan}).stopped, 1);
}

TEST(DecideStep, AddsLossesMicroBatchByMicroBatch) {
  // Added rank by rank, 1e16 and -1e16 would cancel first, and the sum would be 2.
  EXPECT_EQ(decided({}, {.lr = 1}, {1e16, 4, 0, -1e16, 1, 5, 0, 1}, {}, 4).loss, 1);
  EXPECT_EQ(decided({}, {.lr = 1}, {1e16, 4, 0, -1e16, 1, 5, 0, 1}, {}, 4).norm, 3);

  constexpr int pieces = 12;
  const auto loss_of = [](int piece) { return std::pow(10.0, 9 * reference::number_at(1, piece)); };
  double expected = 0;
  for (int piece = 0; piece < pieces; ++piece) expected += loss_of(piece);
  for (const int ranks : {1, 2, 3, 4, 5, 6, 12}) {
    const int rounds = (pieces + ranks - 1) / ranks;
    std::vector<double> sums;
    for (int rank = 0; rank < ranks; ++rank) {
      sums.insert(sums.end(), {loss_of(rank), 1, 0});
      for (int round = 1; round < rounds; ++round) {
        const int piece = round * ranks + rank;
        sums.push_back(piece < pieces ? loss_of(piece) : 0);
      }
    }
    EXPECT_EQ(decided({}, {.lr = 1}, sums, {}, 2 + rounds).loss, expected) << ranks;
  }
}

TEST(DecideStep, ReportsTheFirstRankThatForfeitedItsPass) {
  for (const std::int64_t columns : {3, 4, 6}) {
    std::vector<double> sums(static_cast<std::size_t>(4 * columns), 1.0);
    for (const std::int64_t rank : {0, 3}) sums[static_cast<std::size_t>(columns * rank + 2)] = 0;
    const StepDecision step = decided({}, {.lr = 1}, sums, {.taken = 5}, columns);
    EXPECT_EQ(step.forfeited, 1);
    EXPECT_EQ(step.skipped, 1);
    EXPECT_EQ(step.stopped, 0);
    EXPECT_EQ(step.taken, 5);
    for (const std::int64_t rank : {1, 2}) sums[static_cast<std::size_t>(columns * rank + 2)] = 0;
    const StepDecision next = decided({}, {.lr = 1}, sums, step, columns);
    EXPECT_EQ(next.forfeited, -1);
    EXPECT_EQ(next.taken, 6);
    EXPECT_EQ(next.loss, static_cast<double>(4 * (columns - 2)));
  }
}

TEST(DecideStep, ClipsByASeparateNormWithItsLearningRateFactor) {
  const StepInputs inputs{.lr = 0.01, .loss_scale = 2};
  // For each of two ranks: loss, squares, forfeit, an additional loss, squares of two separate norms.
  const std::vector<double> sums = {1, 16, 0, 2, 1e4, 36, 4, 20, 0, 8, 0, 28};
  const auto decide = [&](std::int64_t norm, const std::vector<double>& of, bool skips = false) {
    Rank rank(1);
    return reference::decided(rank,
                              {.rules = {.clip = 2, .skips_overflow = skips}, .lr = 0.1, .norm = norm, .apart = 2},
                              inputs, {.sums = of, .ranks = 2}, {.taken = 4});
  };
  for (const auto& [norm, expected] : {std::pair{0, 3.0}, {1, 50.0}, {2, 4.0}}) {
    const StepDecision step = decide(norm, sums);
    EXPECT_EQ(step.norm, expected);
    EXPECT_EQ(step.gradient_scale, static_cast<float>(2 / (expected + 1e-6) / 2));
    EXPECT_EQ(step.lr, 0.01 * 0.1);
    EXPECT_EQ(step.loss, 15);
    EXPECT_EQ(step.taken, 5);
    EXPECT_EQ(step.forfeited, -1);
  }
  for (const std::size_t place : {1u, 4u, 11u}) {  // one sum of squares of each norm
    std::vector<double> bad = sums;
    bad[place] = std::numeric_limits<double>::infinity();
    for (const std::int64_t norm : {0, 1, 2}) {
      const StepDecision skipped = decide(norm, bad, true), stopped = decide(norm, bad);
      EXPECT_EQ(skipped.skipped, 1);
      EXPECT_EQ(skipped.stopped, 0);
      EXPECT_EQ(skipped.taken, 4);
      EXPECT_EQ(skipped.norm, std::numeric_limits<double>::infinity());
      EXPECT_EQ(stopped.stopped, 1);
    }
  }
}

TEST(SumOfSquares, IsBitIdenticalForAnyNumberOfThreads) {
  for (const std::int64_t count : {0, 1, 3, 7, 15, 257, 16384, 40000}) {
    const auto x = Matrix<float>::random_numbers(1, count);
    std::vector<double> sums;
    for (const Case& c : Rank::variants()) {
      expect_sum_of_squares<Rank>(c, count);
      Rank rank(c);
      enqueue(rank.stream, SumOfSquares{.x = x, .sum = {&sums.emplace_back(2), {1}}});
    }
    EXPECT_EQ(sums, Values(sums.size(), sums[0]));
  }
}

TEST(SumOfSquares, PropagatesNanAndDoesNotOverflow) {
  Rank rank(1);
  auto x = Matrix<float>::random_numbers(1, 40);
  x.at(0, 20) = 1e30f;
  double sum = 0;
  enqueue(rank.stream, SumOfSquares{.x = x, .sum = {&sum, {1}}});
  EXPECT_NEAR(sum / 1e60, 1, 1e-6);
  x.at(0, 39) = std::numeric_limits<float>::quiet_NaN();
  enqueue(rank.stream, SumOfSquares{.x = x, .sum = {&sum, {1}}});
  EXPECT_TRUE(std::isnan(sum));
}

}  // namespace
}  // namespace fsdp::device
