// SPDX-License-Identifier: Apache-2.0
// SGD, and the operations of Muon, against float64.
#include <cmath>
#include <vector>

#include "steps_reference.hpp"

namespace fsdp::device {
namespace {

using namespace reference;

template <class T>
class Steps : public ::testing::Test {};
using Types = ::testing::Types<float, bf16>;
TYPED_TEST_SUITE(Steps, Types);

TYPED_TEST(Steps, SgdIsTheReferenceAndRoundsTheModelOnce) {
  constexpr bool with_model = !std::is_same_v<TypeParam, float>;
  const StepDecision step = third_step();
  for (const SgdRules& rules : sgd_rules())
    for (const std::int64_t count : {1, 15, 16, 20011})
      for (const int threads : team_sizes()) {
        Rank rank(threads);
        auto w = Matrix<float>::random(1, 1, count), m = Matrix<float>::random(2, 1, count);
        const auto g = Matrix<float>::random(4, 1, count, 0, 5);
        Matrix<TypeParam> model(1, count);
        Values w_expected = w.values(), m_expected = m.values();
        sgd_reference(rules, step, w_expected, m_expected, g.values());
        enqueue(rank.stream, SgdStep<TypeParam>{.rules = rules,
                                                .step = on_device(step),
                                                .main = w.vector(),
                                                .momentum = rules.momentum == 0 ? Tensor<float>() : m.vector(),
                                                .gradient = g.vector_input(),
                                                .model = with_model ? model.vector() : Tensor<TypeParam>()});
        EXPECT_LT(difference(w.values(), w_expected), 1e-6);
        EXPECT_LT(difference(m.values(), m_expected), 1e-6);
        for (std::int64_t i = 0; i < count && with_model; ++i)
          ASSERT_EQ(static_cast<float>(model.at(0, i)), static_cast<float>(TypeParam(w.at(0, i))));
      }
}

TYPED_TEST(Steps, OfMuonAreTheReference) {
  const StepDecision step = third_step();
  for (const bool nesterov : {false, true})
    for (const std::int64_t count : {1, 33, 20011}) {
      Rank rank(2);
      auto m = Matrix<float>::random(1, 1, count);
      const auto g = Matrix<float>::random(2, 1, count, 0, 5);
      Matrix<float> direction(1, count);
      Values m_expected = m.values();
      const Values d_expected = direction_reference(nesterov, step, m_expected, g.values());
      enqueue(rank.stream, MomentumDirection{.momentum = 0.95f,
                                             .nesterov = nesterov,
                                             .step = on_device(step),
                                             .gradient = g.vector_input(),
                                             .state = m.vector(),
                                             .direction = direction.vector()});
      EXPECT_LT(difference(m.values(), m_expected), 1e-6);
      EXPECT_LT(difference(direction.values(), d_expected), 1e-6);

      double squares = 0;
      for (const double value : d_expected) squares += value * value;
      Matrix<TypeParam> x(1, count), y = Matrix<TypeParam>::random(3, 1, count);
      enqueue(rank.stream,
              Normalized<TypeParam>{.x = direction.vector_input(), .squares = {&squares, {1}}, .y = x.vector()});
      Values expected = d_expected;
      for (double& value : expected) value /= std::sqrt(squares) + 1e-7;
      EXPECT_LT(difference(x.values(), expected), tolerance<TypeParam>());

      const Values x_values = x.values();
      expected = y.values();
      for (std::size_t i = 0; i < expected.size(); ++i) expected[i] = -2 * x_values[i] + 3 * expected[i];
      enqueue(rank.stream, Combination<TypeParam>{.alpha = -2, .x = x.vector_input(), .beta = 3, .y = y.vector()});
      EXPECT_LT(difference(y.values(), expected), tolerance<TypeParam>());
    }
}

TYPED_TEST(Steps, AlongADirectionDecayTheWeightsAndRoundTheModel) {
  constexpr bool with_model = !std::is_same_v<TypeParam, float>;
  const StepDecision step = third_step();
  Rank rank(2);
  auto w = Matrix<float>::random(1, 1, 257);
  const auto d = Matrix<TypeParam>::random(2, 1, 257);
  Matrix<TypeParam> model(1, 257);
  Values expected = w.values();
  const Values direction = d.values();
  for (std::size_t i = 0; i < expected.size(); ++i)
    expected[i] = expected[i] * (1 - step.lr * 0.1) - step.lr * 3 * direction[i];
  enqueue(rank.stream, DirectionStep<TypeParam>{.weight_decay = 0.1f,
                                                .scale = 3,
                                                .step = on_device(step),
                                                .direction = d.vector_input(),
                                                .main = w.vector(),
                                                .model = with_model ? model.vector() : Tensor<TypeParam>()});
  EXPECT_LT(difference(w.values(), expected), 1e-6);
  for (std::int64_t i = 0; i < 257 && with_model; ++i)
    ASSERT_EQ(static_cast<float>(model.at(0, i)), static_cast<float>(TypeParam(w.at(0, i))));
}

TYPED_TEST(Steps, ThatAreSkippedWriteTheModelAlone) {
  constexpr bool with_model = !std::is_same_v<TypeParam, float>;
  const StepDecision step{.skipped = 1};
  Rank rank(2);
  auto w = Matrix<float>::random(1, 1, 300), m = Matrix<float>::random(2, 1, 300);
  const Matrix<float> nan(1, 300);
  Matrix<float> direction(1, 300);
  Matrix<TypeParam> model(1, 300), nan_direction(1, 300);
  const Values before = w.values(), state = m.values();
  const auto check = [&] {
    EXPECT_EQ(w.values(), before);
    EXPECT_EQ(m.values(), state);
    for (std::int64_t i = 0; i < 300 && with_model; ++i)
      ASSERT_EQ(static_cast<float>(model.at(0, i)), static_cast<float>(TypeParam(w.at(0, i))));
  };
  const Tensor<TypeParam> written = with_model ? model.vector() : Tensor<TypeParam>();
  enqueue(rank.stream, SgdStep<TypeParam>{.rules = {},
                                          .step = on_device(step),
                                          .main = w.vector(),
                                          .momentum = m.vector(),
                                          .gradient = nan.vector_input(),
                                          .model = written});
  check();
  enqueue(rank.stream, MomentumDirection{.step = on_device(step),
                                         .gradient = nan.vector_input(),
                                         .state = m.vector(),
                                         .direction = direction.vector()});
  EXPECT_EQ(direction.values(), Values(300, 0.0));
  enqueue(
      rank.stream,
      DirectionStep<TypeParam>{
          .step = on_device(step), .direction = nan_direction.vector_input(), .main = w.vector(), .model = written});
  check();
}

}  // namespace
}  // namespace fsdp::device
