// SPDX-License-Identifier: Apache-2.0
/// Optimizers, and what communicators queue, on Cuda against float64.
#include <type_traits>

#include "cuda_reference.hpp"
#include "steps_reference.hpp"

namespace fsdp::device {
namespace {

using namespace reference;

/// One step of `count` weights, with model weights of type Model or, where that is float, without.
template <class Model>
void expect_the_reference_step(bool plain, std::int64_t count, std::int64_t offset) {
  constexpr bool with_model = !std::is_same_v<Model, float>;
  const AdamWRules rules{.weight_decay = 0.1f};
  const StepDecision step = third_step();
  CudaRank rank(plain);
  auto w = Matrix<float>::random(1, 1, count), m = Matrix<float>::random(2, 1, count);
  auto v = Matrix<float>::random(3, 1, count);
  for (std::int64_t i = 0; i < count; ++i) v.at(0, i) = std::abs(v.at(0, i));
  const auto g = Matrix<float>::random(4, 1, count, 0, 5);
  Matrix<Model> model(1, count);
  Values w_expected = w.values(), m_expected = m.values(), v_expected = v.values();
  adamw_reference(rules, step, w_expected, m_expected, v_expected, g.values());
  const OnDevice<float> dw(rank, w, offset), dm(rank, m, offset), dv(rank, v, offset), dg(rank, g, offset);
  const OnDevice<Model> dmodel(rank, model, offset);
  const NumbersOnDevice<StepDecision> decision(rank, {step});
  enqueue(rank.stream, AdamWStep<Model>{.rules = rules,
                                        .step = decision.view(),
                                        .main = dw.vector(),
                                        .first_moment = dm.vector(),
                                        .second_moment = dv.vector(),
                                        .gradient = dg.vector_input(),
                                        .model = with_model ? dmodel.vector() : Tensor<Model>()});
  EXPECT_LT(difference(dw.back().values(), w_expected), 1e-6);
  EXPECT_LT(difference(dm.back().values(), m_expected), 1e-6);
  EXPECT_LT(difference(dv.back().values(), v_expected), 1e-6);
  dmodel.back();
  for (std::int64_t i = 0; i < count && with_model; ++i)
    ASSERT_EQ(static_cast<float>(model.at(0, i)), static_cast<float>(Model(w.at(0, i))));
}

template <class Model>
void expect_the_reference_of_sgd(bool plain, std::int64_t count, std::int64_t offset, const SgdRules& rules) {
  constexpr bool with_model = !std::is_same_v<Model, float>;
  const StepDecision step = third_step();
  CudaRank rank(plain);
  auto w = Matrix<float>::random(1, 1, count), m = Matrix<float>::random(2, 1, count);
  const auto g = Matrix<float>::random(4, 1, count, 0, 5);
  Matrix<Model> model(1, count);
  Values w_expected = w.values(), m_expected = m.values();
  sgd_reference(rules, step, w_expected, m_expected, g.values());
  const OnDevice<float> dw(rank, w, offset), dm(rank, m, offset), dg(rank, g, offset);
  const OnDevice<Model> dmodel(rank, model, offset);
  const NumbersOnDevice<StepDecision> decision(rank, {step});
  enqueue(rank.stream, SgdStep<Model>{.rules = rules,
                                      .step = decision.view(),
                                      .main = dw.vector(),
                                      .momentum = rules.momentum == 0 ? Tensor<float>() : dm.vector(),
                                      .gradient = dg.vector_input(),
                                      .model = with_model ? dmodel.vector() : Tensor<Model>()});
  EXPECT_LT(difference(dw.back().values(), w_expected), 1e-6);
  EXPECT_LT(difference(dm.back().values(), m_expected), 1e-6);
  dmodel.back();
  for (std::int64_t i = 0; i < count && with_model; ++i)
    ASSERT_EQ(static_cast<float>(model.at(0, i)), static_cast<float>(Model(w.at(0, i))));
}

TEST(CudaOptimizer, SgdIsTheReferenceAndRoundsTheModelOnce) {
  FSDP_NEEDS_DEVICE();
  for (const bool plain : {false, true})
    for (const SgdRules& rules : sgd_rules())
      for (const std::int64_t count : {3, 1023})
        for (const std::int64_t offset : {0, 2}) {
          expect_the_reference_of_sgd<float>(plain, count, offset, rules);
          expect_the_reference_of_sgd<bf16>(plain, count, offset, rules);
          expect_the_reference_of_sgd<f16>(plain, count, offset, rules);
        }
}

/// Momentum, normalising, a polynomial's sum and the step, one after the other.
template <class T>
void expect_the_reference_of_muon(bool plain, std::int64_t count, bool nesterov) {
  const StepDecision step = third_step();
  CudaRank rank(plain);
  auto w = Matrix<float>::random(1, 1, count), m = Matrix<float>::random(2, 1, count);
  const auto g = Matrix<float>::random(4, 1, count, 0, 5);
  Matrix<float> direction(1, count);
  Matrix<T> x(1, count), y = Matrix<T>::random(5, 1, count), model(1, count);
  Values m_expected = m.values(), w_expected = w.values();
  const Values d_expected = direction_reference(nesterov, step, m_expected, g.values());
  double squares = 0;
  for (const double value : d_expected) squares += value * value;
  const OnDevice<float> dw(rank, w, 0), dm(rank, m, 0), dg(rank, g, 0), dd(rank, direction, 0);
  const OnDevice<T> dx(rank, x, 0), dy(rank, y, 0), dmodel(rank, model, 0);
  const NumbersOnDevice<StepDecision> decision(rank, {step});
  const NumbersOnDevice<double> sum(rank, {squares});
  const Values y_before = y.values();
  enqueue(rank.stream, MomentumDirection{.nesterov = nesterov,
                                         .step = decision.view(),
                                         .gradient = dg.vector_input(),
                                         .state = dm.vector(),
                                         .direction = dd.vector()});
  enqueue(rank.stream, Normalized<T>{.x = dd.vector_input(), .squares = sum.view(), .y = dx.vector()});
  enqueue(rank.stream, Combination<T>{.alpha = -2, .x = dx.vector_input(), .beta = 3, .y = dy.vector()});
  enqueue(rank.stream, DirectionStep<T>{.weight_decay = 0.1f,
                                        .scale = 3,
                                        .step = decision.view(),
                                        .direction = dy.vector_input(),
                                        .main = dw.vector(),
                                        .model = std::is_same_v<T, float> ? Tensor<T>() : dmodel.vector()});
  EXPECT_LT(difference(dm.back().values(), m_expected), 1e-6);
  EXPECT_LT(difference(dd.back().values(), d_expected), 1e-6);
  Values expected = d_expected;
  for (double& value : expected) value /= std::sqrt(squares) + 1e-7;
  EXPECT_LT(difference(dx.back().values(), expected), cuda_tolerance<T>());
  const Values found_x = x.values();
  for (std::size_t i = 0; i < expected.size(); ++i) expected[i] = -2 * found_x[i] + 3 * y_before[i];
  EXPECT_LT(difference(dy.back().values(), expected), cuda_tolerance<T>());
  const Values found_y = y.values();
  for (std::size_t i = 0; i < w_expected.size(); ++i)
    w_expected[i] = w_expected[i] * (1 - step.lr * 0.1) - step.lr * 3 * found_y[i];
  EXPECT_LT(difference(dw.back().values(), w_expected), 1e-6);
}

TEST(CudaOptimizer, MuonsOperationsAreTheReference) {
  FSDP_NEEDS_DEVICE();
  for (const bool plain : {false, true})
    for (const std::int64_t count : {3, 1023})
      for (const bool nesterov : {false, true}) {
        expect_the_reference_of_muon<float>(plain, count, nesterov);
        expect_the_reference_of_muon<bf16>(plain, count, nesterov);
        expect_the_reference_of_muon<f16>(plain, count, nesterov);
      }
}

TEST(CudaOptimizer, AdamWIsTheReferenceAndRoundsTheModelOnce) {
  FSDP_NEEDS_DEVICE();
  for (const bool plain : {false, true})
    for (const std::int64_t count : {1, 3, 31, 1023, 20011})
      for (const std::int64_t offset : {0, 2}) {
        expect_the_reference_step<float>(plain, count, offset);
        expect_the_reference_step<bf16>(plain, count, offset);
        expect_the_reference_step<f16>(plain, count, offset);
      }
}

TEST(CudaOptimizer, ASkippedStepWritesModelWeightsAlone) {
  FSDP_NEEDS_DEVICE();
  for (const bool plain : {false, true}) {
    CudaRank rank(plain);
    auto w = Matrix<float>::random(1, 1, 1023), m = Matrix<float>::random(2, 1, 1023), v = m;
    const auto g = Matrix<float>(1, 1023);  // NaN
    Matrix<bf16> model(1, 1023);
    const Values before = w.values(), moment = m.values();
    const OnDevice<float> dw(rank, w), dm(rank, m), dv(rank, v), dg(rank, g);
    const OnDevice<bf16> dmodel(rank, model);
    const NumbersOnDevice<StepDecision> decision(rank, {StepDecision{.skipped = 1}});
    enqueue(rank.stream, AdamWStep<bf16>{.step = decision.view(),
                                         .main = dw.vector(),
                                         .first_moment = dm.vector(),
                                         .second_moment = dv.vector(),
                                         .gradient = dg.vector_input(),
                                         .model = dmodel.vector()});
    EXPECT_EQ(dw.back().values(), before);
    EXPECT_EQ(dm.back().values(), moment);
    EXPECT_EQ(dv.back().values(), moment);
    dmodel.back();
    for (std::int64_t i = 0; i < 1023; ++i) ASSERT_EQ(model.at(0, i).bits, bf16(w.at(0, i)).bits);
  }
}

TEST(CudaOptimizer, DecidesAStepFromAllRanks) {
  FSDP_NEEDS_DEVICE();
  CudaRank rank;
  const StepRules run{.clip = 0.5};
  const NumbersOnDevice<StepInputs> inputs(rank, {{.lr = 0.01, .loss_scale = 8}});
  const NumbersOnDevice<double> sums(rank, {1, 64, 2, 128, 4, 64});
  const NumbersOnDevice<StepDecision> decision(rank, {StepDecision{.taken = 2}});
  enqueue(rank.stream, DecideStep{.rules = run,
                                  .inputs = inputs.view(),
                                  .sums = Tensor<const double>(sums.view().data(), {3, 2}),
                                  .step = decision.view()});
  const StepDecision step = decision.back().front();
  EXPECT_EQ(step.loss, 7);
  EXPECT_EQ(step.norm, 2);
  EXPECT_EQ(step.taken, 3);
  EXPECT_NEAR(step.gradient_scale, 0.5 / 2.000001 / 8, 1e-8);
  EXPECT_EQ(step.lr, 0.01);
  EXPECT_EQ(step.skipped + step.stopped, 0);
}

TEST(CudaOptimizer, SumOfSquaresIsAddedInDouble) {
  FSDP_NEEDS_DEVICE();
  for (const bool plain : {false, true})
    for (const std::int64_t count : {0, 1, 3, 257, 16384, 40001})
      for (const std::int64_t offset : {0, 1}) {
        CudaRank rank(plain);
        const auto x = Matrix<float>::random(1, 1, count);
        const OnDevice<float> device(rank, x, offset);
        const NumbersOnDevice<double> sum(rank, {2}), again(rank, {2});
        enqueue(rank.stream, SumOfSquares{.x = device.vector_input(), .sum = sum.view()});
        enqueue(rank.stream, SumOfSquares{.x = device.vector_input(), .sum = again.view()});
        EXPECT_NEAR(sum.back()[0] / (2 + dot(x.values(), x.values())), 1, 1e-12);
        EXPECT_EQ(sum.back(), again.back());
      }
}

TEST(CudaOptimizer, AddsFurtherLossesMicroBatchByMicroBatch) {
  FSDP_NEEDS_DEVICE();
  CudaRank rank;
  const NumbersOnDevice<StepInputs> inputs(rank, {{.lr = 0.01}});
  const NumbersOnDevice<double> sums(rank, {1e16, 4, 0, -1e16, 1, 5, 0, 1});
  const NumbersOnDevice<StepDecision> decision(rank, {StepDecision()});
  enqueue(rank.stream, DecideStep{.inputs = inputs.view(),
                                  .sums = Tensor<const double>(sums.view().data(), {2, 4}),
                                  .step = decision.view()});
  EXPECT_EQ(decision.back().front().loss, 1);
  EXPECT_EQ(decision.back().front().norm, 3);
}

TEST(CudaCommunication, SumsInOrderRoundEveryContributionOnce) {
  FSDP_NEEDS_DEVICE();
  for (const bool in_place : {false, true})
    for (const DType wire : {DType::f32, DType::bf16, DType::f16})
      for (const Write write : {Write::overwrite, Write::accumulate})
        for (const std::int64_t count : {1, 31, 1023, 4099}) {
          CudaRank rank;
          auto a = Matrix<float>::random(1, 1, count), b = Matrix<float>::random(2, 1, count);
          auto c = Matrix<float>::random(3, 1, count), sum = Matrix<float>::random(4, 1, count);
          const auto rounded = [&](float x) {
            return wire == DType::bf16  ? static_cast<float>(bf16(x))
                   : wire == DType::f16 ? static_cast<float>(f16(x))
                                        : x;
          };
          const OnDevice<float> da(rank, a), db(rank, b), dc(rank, c), dsum(rank, sum);
          const OnDevice<float>& to = in_place ? db : dsum;
          Values expected;
          for (std::int64_t i = 0; i < count; ++i) {
            const float before = in_place ? b.at(0, i) : sum.at(0, i), first = rounded(a.at(0, i));
            const float total = write == Write::accumulate ? before + first : first;
            expected.push_back(total + rounded(b.at(0, i)) + rounded(c.at(0, i)));
          }
          const auto bytes = [](const OnDevice<float>& x) {
            return reinterpret_cast<const std::byte*>(x.input().data());
          };
          const std::vector<const std::byte*> parts = {bytes(da), bytes(db), bytes(dc)};
          Cuda::sum_in_order(rank.stream, parts, DType::f32, wire, count, write, to.view().data());
          EXPECT_EQ(to.back().values(), expected);

          Matrix<bf16> narrow(1, count);
          const OnDevice<bf16> stored(rank, narrow);
          Cuda::round(rank.stream, da.input().data(), DType::bf16, count,
                      reinterpret_cast<std::byte*>(stored.view().data()));
          const std::vector<const std::byte*> one = {reinterpret_cast<const std::byte*>(stored.input().data())};
          Cuda::sum_in_order(rank.stream, one, DType::bf16, DType::f32, count, Write::overwrite, dc.view().data());
          stored.back(), dc.back();
          for (std::int64_t i = 0; i < count; ++i) {
            ASSERT_EQ(narrow.at(0, i).bits, bf16(a.at(0, i)).bits);
            ASSERT_EQ(c.at(0, i), static_cast<float>(narrow.at(0, i)));
          }
        }
}

}  // namespace
}  // namespace fsdp::device
