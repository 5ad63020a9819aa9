// SPDX-License-Identifier: Apache-2.0
/// The two ends of a model, the optimizer, and what communicators queue, on Cuda against float64.
#include <numeric>
#include <type_traits>

#include "cuda_reference.hpp"
#include "exact_norm_reference.hpp"
#include "steps_reference.hpp"

namespace fsdp::device {
namespace {

using namespace reference;

TEST(CudaVocabulary, EmbeddingTakesRowsAndItsBackwardAddsThemInTokenOrder) {
  FSDP_NEEDS_DEVICE();
  for_types_and_variants([](auto type, bool plain) {
    using T = decltype(type);
    std::vector<std::int32_t> tokens = {4, 0, 4, 2, 4, 1, 0};
    for (std::int32_t t = 0; t < 300; ++t) tokens.push_back(t * t % 5 == 3 ? 0 : t * t % 5);  // 3 never comes
    const auto count = static_cast<std::int64_t>(tokens.size());
    for (const std::int64_t columns : {1, 15, 64, 2056}) {
      CudaRank rank(plain);
      const NumbersOnDevice<std::int32_t> ids(rank, tokens);
      const auto table = Matrix<T>::random(1, 5, columns), dy = Matrix<T>::random(2, count, columns, 8);
      Matrix<T> out(count, columns, 8);
      Matrix<float> gradient(5, columns), expected(5, columns);
      const OnDevice<T> device_table(rank, table), device_out(rank, out), device_dy(rank, dy);
      const OnDevice<float> device_gradient(rank, gradient);
      enqueue(rank.stream, Embedding<T>{.table = device_table.input(), .tokens = ids.view(), .out = device_out.view()});
      device_out.back();
      expected.set([](std::int64_t) { return 0; });
      for (const int times : {1, 2}) {
        for (std::int64_t t = 0; t < count; ++t)
          for (std::int64_t i = 0; i < columns; ++i) {
            const std::int32_t token = tokens[static_cast<std::size_t>(t)];
            ASSERT_EQ(static_cast<float>(out.at(t, i)), static_cast<float>(table.view().row(token)[i]));
            expected.at(token, i) += static_cast<float>(dy.view().row(t)[i]);
          }
        enqueue(rank.stream, EmbeddingBackward<T>{.tokens = ids.view(),
                                                  .dy = device_dy.input(),
                                                  .dtable = device_gradient.view(),
                                                  .write = times == 1 ? Write::overwrite : Write::accumulate});
        EXPECT_EQ(device_gradient.back().values(), expected.values()) << columns;
      }
      EXPECT_TRUE(out.gaps_untouched());
    }
  });
}

/// Blocks own several rows each, far apart.
TEST(CudaVocabulary, EveryRowOfALargeTableTakesItsGradient) {
  FSDP_NEEDS_DEVICE();
  const std::vector<std::int32_t> tokens = {0, 1024, 1, 1599, 0, 1023, 575, 1024, 1025, 575, 576};
  const auto count = static_cast<std::int64_t>(tokens.size());
  CudaRank rank;
  const NumbersOnDevice<std::int32_t> ids(rank, tokens);
  const auto dy = Matrix<bf16>::random(1, count, 8);
  auto gradient = Matrix<float>::random(2, 1600, 8);  // what is not added to becomes 0
  Matrix<float> expected(1600, 8);
  expected.set([](std::int64_t) { return 0; });
  for (std::int64_t t = 0; t < count; ++t)
    for (std::int64_t i = 0; i < 8; ++i)
      expected.at(tokens[static_cast<std::size_t>(t)], i) += static_cast<float>(dy.view().row(t)[i]);
  const OnDevice<bf16> device_dy(rank, dy);
  const OnDevice<float> sums(rank, gradient);
  enqueue(rank.stream,
          EmbeddingBackward<bf16>{
              .tokens = ids.view(), .dy = device_dy.input(), .dtable = sums.view(), .write = Write::overwrite});
  EXPECT_EQ(sums.back().values(), expected.values());
}

TEST(CudaVocabulary, ATokenOutsideTheVocabularyShowsAsNanAndMovesNoGradient) {
  FSDP_NEEDS_DEVICE();
  for (const bool plain : {false, true}) {
    CudaRank rank(plain);
    const NumbersOnDevice<std::int32_t> ids(rank, {1, 5, -1});
    const auto table = Matrix<float>::random(1, 5, 8), dy = Matrix<float>::random(2, 3, 8);
    Matrix<float> out(3, 8), gradient(5, 8);
    const OnDevice<float> device_table(rank, table), device_dy(rank, dy), device_out(rank, out), sums(rank, gradient);
    enqueue(rank.stream,
            Embedding<float>{.table = device_table.input(), .tokens = ids.view(), .out = device_out.view()});
    device_out.back();
    EXPECT_TRUE(out.at(0, 7) == table.view().row(1)[7] && std::isnan(out.at(1, 0)) && std::isnan(out.at(2, 7)));
    enqueue(rank.stream,
            EmbeddingBackward<float>{
                .tokens = ids.view(), .dy = device_dy.input(), .dtable = sums.view(), .write = Write::overwrite});
    sums.back();
    for (std::int64_t row = 0; row < 5; ++row) EXPECT_EQ(gradient.at(row, 3), row == 1 ? dy.view().row(0)[3] : 0);
  }
}

/// Losses and gradients of rows of logits in float64.
struct Expected {
  double loss = 10;
  Values gradient;
};
Expected cross_entropy_reference(const Values& logits, const std::vector<std::int32_t>& targets, double scale) {
  Expected expected;
  const std::size_t columns = logits.size() / targets.size();
  for (std::size_t t = 0; t < targets.size(); ++t) {
    const auto row = logits.begin() + static_cast<std::ptrdiff_t>(t * columns);
    const double most = *std::max_element(row, row + static_cast<std::ptrdiff_t>(columns));
    double sum = 0;
    for (std::size_t i = 0; i < columns; ++i) sum += std::exp(row[static_cast<std::ptrdiff_t>(i)] - most);
    for (std::size_t i = 0; i < columns; ++i) {
      const double p = std::exp(row[static_cast<std::ptrdiff_t>(i)] - most) / sum;
      expected.gradient.push_back(scale * (p - (i == static_cast<std::size_t>(targets[t]) ? 1 : 0)));
    }
    expected.loss += std::log(sum) + most - row[targets[t]];
  }
  return expected;
}

std::vector<std::int32_t> some_targets(const CudaCase& c) {
  std::vector<std::int32_t> targets;
  for (std::int64_t t = 0; t < c.rows; ++t)
    targets.push_back(static_cast<std::int32_t>((t * 7 + c.columns / 2) % c.columns));
  return targets;
}

TEST(CudaVocabulary, CrossEntropyAddsTheLossAndLeavesItsGradient) {
  FSDP_NEEDS_DEVICE();
  for_types_and_variants([](auto type, bool plain) {
    using T = decltype(type);
    for (const CudaCase& c : cuda_cases()) {
      CudaRank rank(plain);
      auto logits = Matrix<T>::random(1, c.rows, c.columns, c.gap, 9);
      const std::vector<std::int32_t> targets = some_targets(c);
      const Values before = logits.values();
      const Expected expected = cross_entropy_reference(before, targets, 0.5);
      const NumbersOnDevice<std::int32_t> ids(rank, targets);
      const NumbersOnDevice<double> loss(rank, {10}), loss_only(rank, {10});
      const OnDevice<T> device(rank, logits, c.offset);
      enqueue(rank.stream,
              CrossEntropyLoss<T>{.logits = device.input(), .targets = ids.view(), .loss = loss_only.view()});
      EXPECT_EQ(device.back().values(), before);
      enqueue(rank.stream,
              CrossEntropy<T>{.logits = device.view(), .targets = ids.view(), .scale = 0.5f, .loss = loss.view()});
      EXPECT_LT(difference(device.back().values(), expected.gradient), c.columns == 1 ? 1e-30 : cuda_tolerance<T>());
      EXPECT_EQ(loss.back(), loss_only.back());
      EXPECT_NEAR(loss.back()[0] / expected.loss, 1, 1e-6);
      EXPECT_TRUE(logits.gaps_untouched());
    }
  });
}

TEST(CudaVocabulary, CrossEntropyInBlocksOfColumnsIsThatOfWholeRows) {
  FSDP_NEEDS_DEVICE();
  for_types_and_variants([](auto type, bool plain) {
    using T = decltype(type);
    for (const CudaCase& c : cuda_cases())
      for (const std::int64_t block : {std::int64_t{8}, c.columns / 2 + 1, c.columns}) {
        if (c.columns / block > 20) continue;
        CudaRank rank(plain);
        auto logits = Matrix<T>::random(1, c.rows, c.columns, c.gap, 9);
        const std::vector<std::int32_t> targets = some_targets(c);
        const Expected expected = cross_entropy_reference(logits.values(), targets, 0.5);
        const NumbersOnDevice<std::int32_t> ids(rank, targets);
        const NumbersOnDevice<double> loss(rank, {10}),
            memory(rank, std::vector<double>(static_cast<std::size_t>(3 * c.rows), NAN));
        const Tensor<double> state(memory.view().data(), {c.rows, 3});
        const OnDevice<T> device(rank, logits, c.offset);
        for (std::int64_t begin = 0; begin < c.columns; begin += block)
          enqueue(rank.stream,
                  CrossEntropyFold<T>{.logits = device.input().slice_columns(begin, std::min(begin + block, c.columns)),
                                      .first = begin,
                                      .targets = ids.view(),
                                      .state = state});
        enqueue(rank.stream, CrossEntropySum{.state = state, .loss = loss.view()});
        for (std::int64_t begin = 0; begin < c.columns; begin += block)
          enqueue(rank.stream, CrossEntropyGradient<T>{
                                   .logits = device.view().slice_columns(begin, std::min(begin + block, c.columns)),
                                   .first = begin,
                                   .targets = ids.view(),
                                   .scale = 0.5f,
                                   .state = state});
        EXPECT_NEAR(loss.back()[0] / expected.loss, 1, 1e-6);
        EXPECT_LT(difference(device.back().values(), expected.gradient), c.columns == 1 ? 1e-30 : cuda_tolerance<T>());
        EXPECT_TRUE(logits.gaps_untouched());
      }
  });
}

TEST(CudaVocabulary, CrossEntropyShowsWhatIsNotFiniteOrNoTarget) {
  FSDP_NEEDS_DEVICE();
  for (const float bad : {std::numeric_limits<float>::quiet_NaN(), std::numeric_limits<float>::infinity(), 0.0f})
    for (const std::int64_t at : {0, 16, 39}) {
      CudaRank rank;
      auto logits = Matrix<bf16>::random(1, 1, 40);
      if (bad != 0) logits.at(0, at) = bf16(bad);
      const OnDevice<bf16> device(rank, logits);
      const NumbersOnDevice<std::int32_t> ids(rank, {bad != 0 ? 3 : 40});
      const NumbersOnDevice<double> loss(rank, {0});
      enqueue(rank.stream,
              CrossEntropyLoss<bf16>{.logits = device.input(), .targets = ids.view(), .loss = loss.view()});
      EXPECT_TRUE(std::isnan(loss.back()[0])) << bad;
    }
}

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

/// The largest magnitude, the sum of squares and the norm of a tensor, as that of the first of two ranks.
void expect_exact(bool plain, const std::vector<float>& x, std::int64_t offset) {
  CudaRank rank(plain);
  Matrix<float> host(1, std::ssize(x));
  for (std::int64_t i = 0; i < std::ssize(x); ++i) host.at(0, i) = x[static_cast<std::size_t>(i)];
  const ExactNorm expected = exact_reference(x);
  const OnDevice<float> device(rank, host, offset);
  const NumbersOnDevice<std::int64_t> largest(rank, {0, 0});
  enqueue(rank.stream, LargestMagnitude{.x = device.vector_input(), .largest = largest.view().slice(0, 1)});
  EXPECT_EQ(largest.back(), (std::vector<std::int64_t>{expected.largest, 0}));

  const NumbersOnDevice<std::int64_t> exact(rank, {0, 0, 0xffffffff, 1});
  for (const int times : {1, 2}) {
    enqueue(rank.stream,
            FixedPointSquares{.x = device.vector_input(), .largest = largest.view(), .sum = exact.view().slice(0, 2)});
    const std::int64_t low = times * expected.sum[0];
    EXPECT_EQ(exact.back(),
              (std::vector<std::int64_t>{low & 0xffffffff, times * expected.sum[1] + (low >> 32), 0xffffffff, 1}));
  }

  const std::vector<StepInputs> host_inputs = {{.lr = 0.01, .loss_scale = 3}};
  const std::vector<double> host_sums(6);
  const NumbersOnDevice<StepInputs> inputs(rank, host_inputs);
  const NumbersOnDevice<double> sums(rank, host_sums);
  const NumbersOnDevice<StepDecision> decision(rank, {StepDecision()});
  enqueue(rank.stream, DecideStep{.inputs = inputs.view(),
                                  .sums = Tensor<const double>(sums.view().data(), {2, 3}),
                                  .largest = largest.view(),
                                  .exact = Tensor<const std::int64_t>(exact.view().data(), {2, 2}),
                                  .step = decision.view()});
  const std::vector<std::int64_t> host_largest = largest.back(), host_exact = exact.back();
  StepDecision of_host;
  Rank host_rank(1);
  enqueue(host_rank.stream, DecideStep{.inputs = {host_inputs.data(), {1}},
                                       .sums = {host_sums.data(), {2, 3}},
                                       .largest = {host_largest.data(), {2}},
                                       .exact = {host_exact.data(), {2, 2}},
                                       .step = {&of_host, {1}}});
  const double found = decision.back().front().norm;
  EXPECT_EQ(std::memcmp(&found, &of_host.norm, sizeof found), 0) << found << " and " << of_host.norm;
}

/// Three norms of two ranks: that of the rest, and two apart.
TEST(CudaOptimizer, DecidesByANormApartAsCpuDoes) {
  FSDP_NEEDS_DEVICE();
  CudaRank rank;
  Rank host_rank(1);
  const std::vector<StepInputs> host_inputs = {{.lr = 0.01, .loss_scale = 2}};
  const std::vector<double> host_sums = {1, 16, 0, 2, 1e4, 36, 4, 20, 0, 8, 0, 28};
  const std::vector<std::int64_t> host_largest = {0x3f800000, 0x43000000, 0x3c000000, 0x40000000, 0, 0x3c800000};
  const std::vector<std::int64_t> host_exact = {77, 1 << 20, 1, 2, 3, 1 << 25, 5, 6, 7, 8, 9, 10};
  const NumbersOnDevice<StepInputs> inputs(rank, host_inputs);
  const NumbersOnDevice<double> sums(rank, host_sums);
  const NumbersOnDevice<std::int64_t> largest(rank, host_largest), exact(rank, host_exact);
  for (const bool is_exact : {false, true})
    for (std::int64_t norm = 0; norm < 3; ++norm) {
      const NumbersOnDevice<StepDecision> decision(rank, {StepDecision{.taken = 2}});
      StepDecision of_host{.taken = 2};
      const auto decide = [&](auto& stream, const StepInputs* in, const double* numbers, const std::int64_t* most,
                              const std::int64_t* squares, Tensor<StepDecision> to) {
        DecideStep op{.rules = {.clip = 0.5}, .lr = 0.1, .norm = norm, .apart = 2, .inputs = {in, {1}}, .step = to};
        op.sums = {numbers, {2, 6}};
        if (is_exact) {
          op.largest = {most, {2, 3}};
          op.exact = {squares, {2, 6}};
        }
        enqueue(stream, op);
      };
      decide(rank.stream, inputs.view().data(), sums.view().data(), largest.view().data(), exact.view().data(),
             decision.view());
      decide(host_rank.stream, host_inputs.data(), host_sums.data(), host_largest.data(), host_exact.data(),
             {&of_host, {1}});
      const StepDecision found = decision.back().front();
      EXPECT_EQ(std::memcmp(&found, &of_host, sizeof found), 0) << found.norm << " and " << of_host.norm;
      EXPECT_EQ(found.taken, 3);
      EXPECT_EQ(found.lr, 0.01 * 0.1);
    }
}

TEST(CudaOptimizer, SquaresAreRelativeToAColumnOfLargestMagnitudes) {
  FSDP_NEEDS_DEVICE();
  CudaRank rank;
  const OnDevice<float> x(rank, Matrix<float>::random(1, 1, 257));
  const NumbersOnDevice<std::int64_t> apart(rank, {0, 0x3f800000}), all(rank, {7, 0, 0x42000000, 7, 0x3f800000, 0});
  const NumbersOnDevice<std::int64_t> sum(rank, {0, 0}), of_column(rank, {0, 0});
  enqueue(rank.stream, FixedPointSquares{.x = x.vector_input(), .largest = apart.view(), .sum = sum.view()});
  const auto column = Tensor<const std::int64_t>(all.view().data(), {2, 3}).slice_columns(1, 2);
  enqueue(rank.stream, FixedPointSquares{.x = x.vector_input(), .largest = column, .sum = of_column.view()});
  EXPECT_EQ(of_column.back(), sum.back());
  EXPECT_NE(sum.back(), (std::vector<std::int64_t>{0, 0}));
}

TEST(CudaOptimizer, ExactNormIsTheReferences) {
  FSDP_NEEDS_DEVICE();
  for (const bool plain : {false, true})
    for (const std::int64_t count : {1, 3, 257, 16385, 40001})
      for (const std::int64_t offset : {0, 1})
        for (const auto& [words, x] : exact_cases(count)) {
          SCOPED_TRACE(words);
          if (count < 10000 || words.starts_with("mixed") || words.starts_with("ties")) expect_exact(plain, x, offset);
        }
}

TEST(CudaOptimizer, ExactNormShowsWhatIsNotFinite) {
  FSDP_NEEDS_DEVICE();
  constexpr float infinity = std::numeric_limits<float>::infinity();
  for (const bool plain : {false, true})
    for (const float bad : {infinity, -infinity, std::nanf("")}) {
      CudaRank rank(plain);
      auto x = Matrix<float>::random(1, 1, 40001);
      x.at(0, 30000) = bad;
      const OnDevice<float> device(rank, x);
      const NumbersOnDevice<std::int64_t> largest(rank, {0}), exact(rank, {7, 8});
      const NumbersOnDevice<StepInputs> inputs(rank, {{.lr = 0.01}});
      const NumbersOnDevice<double> sums(rank, {1, 1});
      const NumbersOnDevice<StepDecision> decision(rank, {StepDecision()});
      enqueue(rank.stream, LargestMagnitude{.x = device.vector_input(), .largest = largest.view()});
      enqueue(rank.stream,
              FixedPointSquares{.x = device.vector_input(), .largest = largest.view(), .sum = exact.view()});
      enqueue(rank.stream, DecideStep{.inputs = inputs.view(),
                                      .sums = Tensor<const double>(sums.view().data(), {1, 2}),
                                      .largest = largest.view(),
                                      .exact = Tensor<const std::int64_t>(exact.view().data(), {1, 2}),
                                      .step = decision.view()});
      EXPECT_EQ(exact.back(), (std::vector<std::int64_t>{7, 8}));
      const StepDecision step = decision.back().front();
      EXPECT_EQ(step.stopped, 1);
      if (std::isnan(bad))
        EXPECT_TRUE(std::isnan(step.norm));
      else
        EXPECT_EQ(step.norm, std::numeric_limits<double>::infinity());
    }
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
