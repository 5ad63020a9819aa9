// SPDX-License-Identifier: Apache-2.0
#include <cstring>
#include <limits>
#include <vector>

#include "reference.hpp"

namespace fsdp::device {
namespace {

using namespace reference;

constexpr AdamWRules rules{.weight_decay = 0.1f};

TEST(AdamW, IsTheReferenceAndRoundsTheModelOnce) {
  for (const std::int64_t count : {1, 3, 7, 15, 16, 257, 20011})
    for (const int threads : team_sizes()) {
      Rank rank(threads);
      auto w = Matrix<float>::random(1, 1, count), m = Matrix<float>::random(2, 1, count);
      auto v = Matrix<float>::random(3, 1, count);
      for (std::int64_t i = 0; i < count; ++i) v.at(0, i) = std::abs(v.at(0, i));
      const auto g = Matrix<float>::random(4, 1, count, 0, 5);
      Matrix<bf16> model(1, count);
      Values w_expected = w.values(), m_expected = m.values(), v_expected = v.values();
      const StepDecision step = third_step();
      adamw_reference(rules, step, w_expected, m_expected, v_expected, g.values());
      enqueue(rank.stream, AdamWStep<bf16>{.rules = rules,
                                           .step = on_device(step),
                                           .main = w.vector(),
                                           .first_moment = m.vector(),
                                           .second_moment = v.vector(),
                                           .gradient = g.vector_input(),
                                           .model = model.vector()});
      EXPECT_LT(difference(w.values(), w_expected), 1e-6);
      EXPECT_LT(difference(m.values(), m_expected), 1e-6);
      EXPECT_LT(difference(v.values(), v_expected), 1e-6);
      for (std::int64_t i = 0; i < count; ++i) ASSERT_EQ(model.at(0, i).bits, bf16(w.at(0, i)).bits);
    }
}

TEST(AdamW, StepsByTheLearningRateFirstWhateverTheBetas) {
  for (const double beta2 : {0.0, 0.95, 0.99, 0.999, 0.9999, 0.99999}) {
    Rank rank(1);
    Matrix<float> w(1, 16), m(1, 16), v(1, 16), g(1, 16);
    for (const auto& zeros : {&w, &m, &v}) zeros->set([](std::int64_t) { return 0.0; });
    g.set([](std::int64_t i) { return i % 2 == 0 ? 2.0 : -0.5; });
    const StepDecision step{.taken = 1, .lr = 0.01};
    enqueue(rank.stream, AdamWStep<float>{.rules = {.beta1 = beta2 / 1.001, .beta2 = beta2},
                                          .step = on_device(step),
                                          .main = w.vector(),
                                          .first_moment = m.vector(),
                                          .second_moment = v.vector(),
                                          .gradient = g.vector_input()});
    for (std::int64_t i = 0; i < 16; ++i)
      EXPECT_NEAR(static_cast<double>(w.at(0, i)) / (i % 2 == 0 ? -0.01 : 0.01), 1, 1e-6) << beta2;
  }
}

TEST(AdamW, WithoutAModelGivesTheSameWeights) {
  Rank rank(2);
  auto w = Matrix<float>::random(1, 1, 257), m = Matrix<float>::random(2, 1, 257);
  Matrix<float> v(1, 257);
  v.set([](std::int64_t i) { return static_cast<double>(i); });
  auto w2 = w, m2 = m, v2 = v;
  const auto g = Matrix<float>::random(4, 1, 257);
  Matrix<bf16> model(1, 257);
  const StepDecision step = third_step();
  enqueue(rank.stream, AdamWStep<bf16>{.rules = rules,
                                       .step = on_device(step),
                                       .main = w.vector(),
                                       .first_moment = m.vector(),
                                       .second_moment = v.vector(),
                                       .gradient = g.vector_input(),
                                       .model = model.vector()});
  enqueue(rank.stream, AdamWStep<float>{.rules = rules,
                                        .step = on_device(step),
                                        .main = w2.vector(),
                                        .first_moment = m2.vector(),
                                        .second_moment = v2.vector(),
                                        .gradient = g.vector_input()});
  EXPECT_EQ(w.values(), w2.values());
}

TEST(AdamW, ASkippedStepWritesModelWeightsAlone) {
  for (const int threads : team_sizes()) {
    Rank rank(threads);
    auto w = Matrix<float>::random(1, 1, 20011), m = Matrix<float>::random(2, 1, 20011), v = m;
    const auto g = Matrix<float>(1, 20011);  // NaN
    Matrix<bf16> model(1, 20011);
    const Values before = w.values(), moment = m.values();
    const StepDecision step{.skipped = 1};
    enqueue(rank.stream, AdamWStep<bf16>{.rules = rules,
                                         .step = on_device(step),
                                         .main = w.vector(),
                                         .first_moment = m.vector(),
                                         .second_moment = v.vector(),
                                         .gradient = g.vector_input(),
                                         .model = model.vector()});
    EXPECT_EQ(w.values(), before);
    EXPECT_EQ(m.values(), moment);
    EXPECT_EQ(v.values(), moment);
    for (std::int64_t i = 0; i < 20011; ++i) ASSERT_EQ(model.at(0, i).bits, bf16(w.at(0, i)).bits);
    enqueue(rank.stream, AdamWStep<float>{.rules = rules,
                                          .step = on_device(step),
                                          .main = w.vector(),
                                          .first_moment = m.vector(),
                                          .second_moment = v.vector(),
                                          .gradient = g.vector_input()});
    EXPECT_EQ(w.values(), before);
  }
}

/// What Cpu decides from [ranks, columns] sums.
StepDecision decided(const StepRules& run, const StepInputs& inputs, const std::vector<double>& sums,
                     StepDecision step = {}, std::int64_t columns = 2) {
  Rank rank(1);
  enqueue(rank.stream, DecideStep{.rules = run,
                                  .inputs = {&inputs, {1}},
                                  .sums = {sums.data(), {std::ssize(sums) / columns, columns}},
                                  .step = {&step, {1}}});
  return step;
}

TEST(DecideStep, AddsRanksAndClips) {
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

TEST(DecideStep, WhatIsNotFiniteSkipsAStepOrEndsAll) {
  constexpr double nan = std::numeric_limits<double>::quiet_NaN(), inf = std::numeric_limits<double>::infinity();
  for (const double bad : {nan, inf}) {
    const StepDecision skipped = decided({.skips_overflow = true}, {.lr = 1}, {1, 1, 1, bad}, {.taken = 5});
    EXPECT_EQ(skipped.skipped, 1);
    EXPECT_EQ(skipped.stopped, 0);
    EXPECT_EQ(skipped.taken, 5);
    const StepDecision next = decided({.skips_overflow = true}, {.lr = 1}, {1, 1}, skipped);
    EXPECT_EQ(next.skipped, 0);
    EXPECT_EQ(next.taken, 6);

    for (const bool skips_overflow : {false, true}) {  // a loss that is not finite helps nobody
      const StepDecision stopped =
          decided({.skips_overflow = skips_overflow}, {.lr = 1}, {1, 1, bad, skips_overflow ? 1 : bad});
      EXPECT_EQ(stopped.stopped, 1);
      EXPECT_EQ(decided({.skips_overflow = skips_overflow}, {.lr = 1}, {1, 1}, stopped).skipped, 1);
    }
  }
  EXPECT_EQ(decided({}, {.lr = 1}, {1, nan}).stopped, 1);
}

TEST(DecideStep, AddsLossesMicroBatchByMicroBatch) {
  // In rank order 1e16 and -1e16 would cancel before 1 is added.
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

TEST(DecideStep, NamesTheFirstRankThatGaveUpItsPassAmongFurtherLosses) {
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

TEST(DecideStep, ClipsByANormOfItsOwnWithAFactorOfTheLearningRate) {
  const StepInputs inputs{.lr = 0.01, .loss_scale = 2};
  // Two ranks: loss, squares, forfeit, a further loss, squares of two norms apart.
  const std::vector<double> sums = {1, 16, 0, 2, 1e4, 36, 4, 20, 0, 8, 0, 28};
  const auto decide = [&](std::int64_t norm, const std::vector<double>& of, bool skips = false) {
    Rank rank(1);
    StepDecision step{.taken = 4};
    enqueue(rank.stream, DecideStep{.rules = {.clip = 2, .skips_overflow = skips},
                                    .lr = 0.1,
                                    .norm = norm,
                                    .apart = 2,
                                    .inputs = {&inputs, {1}},
                                    .sums = {of.data(), {2, 6}},
                                    .step = {&step, {1}}});
    return step;
  };
  const std::vector<double> norms = {3, 50, 4};
  for (std::int64_t norm = 0; norm < 3; ++norm) {
    const StepDecision step = decide(norm, sums);
    const double expected = norms[static_cast<std::size_t>(norm)];
    EXPECT_EQ(step.norm, expected);
    EXPECT_EQ(step.gradient_scale, static_cast<float>(2 / (expected + 1e-6) / 2));
    EXPECT_EQ(step.lr, 0.01 * 0.1);
    EXPECT_EQ(step.loss, 15);
    EXPECT_EQ(step.taken, 5);
    EXPECT_EQ(step.forfeited, -1);
  }
  for (const std::size_t place : {1u, 4u, 11u}) {  // of each of the norms
    std::vector<double> bad = sums;
    bad[place] = std::numeric_limits<double>::infinity();
    for (std::int64_t norm = 0; norm < 3; ++norm) {
      const StepDecision skipped = decide(norm, bad, true), stopped = decide(norm, bad);
      EXPECT_EQ(skipped.skipped, 1);
      EXPECT_EQ(skipped.stopped, 0);
      EXPECT_EQ(skipped.taken, 4);
      EXPECT_EQ(skipped.norm, std::numeric_limits<double>::infinity());
      EXPECT_EQ(stopped.stopped, 1);
    }
  }
}

TEST(SumOfSquares, HasTheSameBitsForAnyNumberOfThreads) {
  for (const std::int64_t count : {0, 1, 3, 7, 15, 257, 16384, 40000}) {
    const auto x = Matrix<float>::random(1, 1, count);
    const Values values = x.values();
    std::vector<double> sums;
    for (const int threads : team_sizes()) {
      Rank rank(threads);
      double sum = 2;
      enqueue(rank.stream, SumOfSquares{.x = x.vector_input(), .sum = {&sum, {1}}});
      sums.push_back(sum);
    }
    EXPECT_NEAR(sums[0] / (2 + dot(values, values)), 1, 1e-12);
    for (const double sum : sums) EXPECT_EQ(std::memcmp(&sums[0], &sum, sizeof(double)), 0);
  }
}

TEST(SumOfSquares, ShowsNanAndDoesNotOverflow) {
  Rank rank(1);
  auto x = Matrix<float>::random(1, 1, 40);
  x.at(0, 20) = 1e30f;
  double sum = 0;
  enqueue(rank.stream, SumOfSquares{.x = x.vector_input(), .sum = {&sum, {1}}});
  EXPECT_NEAR(sum / 1e60, 1, 1e-6);
  x.at(0, 39) = std::numeric_limits<float>::quiet_NaN();
  enqueue(rank.stream, SumOfSquares{.x = x.vector_input(), .sum = {&sum, {1}}});
  EXPECT_TRUE(std::isnan(sum));
}

}  // namespace
}  // namespace fsdp::device
