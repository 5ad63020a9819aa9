// SPDX-License-Identifier: Apache-2.0
/// @file
/// References of optimizers in float64, and checks of their operations on the ranks of any device.
#pragma once

#include <algorithm>
#include <cmath>
#include <cstddef>
#include <cstdint>
#include <type_traits>
#include <utility>
#include <vector>

#include "reference.hpp"

namespace fsdp::device::reference {

/// The decision for a third step, in which clipping scales the gradient by a quarter.
inline StepDecision third_step() { return {.taken = 3, .lr = 0.01, .gradient_scale = 0.25f}; }

/// One step of AdamW, in place.
inline void adamw_reference(const AdamWRules& rules, const StepDecision& step, Values& w, Values& m, Values& v,
                            const Values& g) {
  const auto taken = static_cast<double>(step.taken);
  for (std::size_t i = 0; i < w.size(); ++i) {
    const double gradient = g[i] * step.gradient_scale;
    m[i] = rules.beta1 * m[i] + (1.0 - rules.beta1) * gradient;
    v[i] = rules.beta2 * v[i] + (1.0 - rules.beta2) * gradient * gradient;
    const double root = std::sqrt(v[i] / (1 - std::pow(rules.beta2, taken))) + rules.eps;
    w[i] = w[i] * (1.0 - step.lr * rules.weight_decay) - step.lr / (1 - std::pow(rules.beta1, taken)) * m[i] / root;
  }
}

/// SGD rules without and with momentum, Nesterov momentum, and weight decay.
inline std::vector<SgdRules> sgd_rules() {
  return {{.momentum = 0},
          {.momentum = 0, .weight_decay = 0.1f},
          {.momentum = 0.9f},
          {.momentum = 0.9f, .nesterov = true, .weight_decay = 0.1f}};
}

/// One step of SGD, in place; `m` is unchanged without momentum.
inline void sgd_reference(const SgdRules& rules, const StepDecision& step, Values& w, Values& m, const Values& g) {
  const auto momentum = static_cast<double>(rules.momentum);
  for (std::size_t i = 0; i < w.size(); ++i) {
    double direction = static_cast<double>(step.gradient_scale) * g[i] + static_cast<double>(rules.weight_decay) * w[i];
    if (momentum != 0) {
      m[i] = momentum * m[i] + direction;
      direction = rules.nesterov ? direction + momentum * m[i] : m[i];
    }
    w[i] -= step.lr * direction;
  }
}

/// Muon's update direction with a momentum of 0.95; updates `m`.
inline Values direction_reference(bool nesterov, const StepDecision& step, Values& m, const Values& g) {
  constexpr double momentum = 0.95;
  const auto scale = static_cast<double>(step.gradient_scale);
  m = combined(momentum, std::move(m), scale, g);
  return nesterov ? combined(scale, g, momentum, m) : m;
}

/// The tensors of an optimizer step: weights, states, a gradient and, unless Model is float, model weights.
template <class Model, class R>
struct Stepped {
  static constexpr bool with_model = !std::is_same_v<Model, float>;

  R rank;
  StepDecision step;
  Listed<R, StepDecision> decision{rank, {step}};
  Held<R, float> w, m, v, g;
  Held<R, Model> model;
  Values w_expected = w.values(), m_expected = m.values(), v_expected = v.values();

  Stepped(const Case& c, std::int64_t count, const StepDecision& decided = third_step())
      : rank(c),
        step(decided),
        w(rank, Matrix<float>::random_numbers(1, count), c.offset),
        m(rank, Matrix<float>::random_numbers(2, count), c.offset),
        v(rank, magnitudes(count), c.offset),
        g(rank, Matrix<float>::random_numbers(4, count, 5), c.offset),
        model(rank, Matrix<Model>::numbers(count), c.offset) {}

  static Matrix<float> magnitudes(std::int64_t count) {
    auto v = Matrix<float>::numbers(count);
    v.set([](std::int64_t i) { return std::abs(number_at(3, i)); });
    return v;
  }
  Tensor<Model> written() { return with_model ? model.tensor() : Tensor<Model>(); }

  /// Fills the model weights with NaN, so that the next step must write them.
  void forget_model() {
    if constexpr (with_model) enqueue(rank.stream, Fill<Model>{.y = model, .value = NAN});
  }

  /// Expects the weights of the reference, and model weights that are the main weights rounded once.
  void expect_step(double bound = 1e-6) const {
    EXPECT_LT(difference(w.values(), w_expected), bound);
    EXPECT_LT(difference(m.values(), m_expected), bound);
    EXPECT_LT(difference(v.values(), v_expected), bound);
    EXPECT_TRUE(!with_model || model.values() == rounded_to<Model>(w.values())) << "the model is not w, rounded once";
  }
};

template <class Model, class R>
void expect_adamw(const Case& c, std::int64_t count) {
  SCOPED_TRACE(message(c.text(), ", ", count, " weights"));
  const AdamWRules rules{.weight_decay = 0.1f};
  Stepped<Model, R> s(c, count);
  adamw_reference(rules, s.step, s.w_expected, s.m_expected, s.v_expected, s.g.values());
  enqueue(s.rank.stream, AdamWStep<Model>{.rules = rules,
                                          .step = s.decision,
                                          .main = s.w.tensor(),
                                          .first_moment = s.m,
                                          .second_moment = s.v,
                                          .gradient = s.g,
                                          .model = s.written()});
  s.expect_step();
}

template <class Model, class R>
void expect_sgd(const Case& c, std::int64_t count) {
  for (const SgdRules& rules : sgd_rules()) {
    SCOPED_TRACE(message(c.text(), ", ", count, " weights, momentum ", rules.momentum));
    Stepped<Model, R> s(c, count);
    sgd_reference(rules, s.step, s.w_expected, s.m_expected, s.g.values());
    enqueue(s.rank.stream, SgdStep<Model>{.rules = rules,
                                          .step = s.decision,
                                          .main = s.w.tensor(),
                                          .momentum = rules.momentum == 0 ? Tensor<float>() : s.m.tensor(),
                                          .gradient = s.g,
                                          .model = s.written()});
    s.expect_step();
  }
}

/// Checks momentum, normalisation, the sum of a polynomial and the step, in this order.
template <class T, class R>
void expect_muon(const Case& c, std::int64_t count) {
  for (const bool nesterov : {false, true}) {
    SCOPED_TRACE(message(c.text(), ", ", count, " weights", nesterov ? ", Nesterov's" : ""));
    Stepped<T, R> s(c, count);
    const Values d_expected = direction_reference(nesterov, s.step, s.m_expected, s.g.values());
    const double squares = dot(d_expected, d_expected);
    Held<R, float> direction(s.rank, Matrix<float>::numbers(count));
    Held<R, T> x(s.rank, Matrix<T>::numbers(count)), y(s.rank, Matrix<T>::random_numbers(5, count));
    const Listed<R, double> sum(s.rank, {squares});
    const Values y_before = y.values();
    enqueue(s.rank.stream,
            MomentumDirection{
                .nesterov = nesterov, .step = s.decision, .gradient = s.g, .state = s.m, .direction = direction});
    EXPECT_LT(difference(direction.values(), d_expected), 1e-6);
    enqueue(s.rank.stream, Normalized<T>{.x = direction, .squares = sum, .y = x});
    const double factor = 1 / (std::sqrt(squares) + 1e-7);
    EXPECT_LT(difference(x.values(), combined(factor, d_expected, 0, d_expected)), R::template tolerance<T>);
    enqueue(s.rank.stream, Combination<T>{.alpha = -2, .x = x, .beta = 3, .y = y});
    EXPECT_LT(difference(y.values(), combined(-2, x.values(), 3, y_before)), R::template tolerance<T>);
    enqueue(s.rank.stream, DirectionStep<T>{.weight_decay = 0.1f,
                                            .scale = 3,
                                            .step = s.decision,
                                            .direction = y,
                                            .main = s.w.tensor(),
                                            .model = s.written()});
    s.w_expected = combined(1 - s.step.lr * 0.1, std::move(s.w_expected), -s.step.lr * 3, y.values());
    s.expect_step();
  }
}

/// Checks that a skipped step writes only the model weights, even if the gradient is NaN.
template <class Model, class R>
void expect_skipped_steps(const Case& c, std::int64_t count) {
  SCOPED_TRACE(message(c.text(), ", ", count, " weights"));
  Stepped<Model, R> s(c, count, {.skipped = 1});
  const Held<R, float> nan(s.rank, Matrix<float>::numbers(count));
  const Held<R, Model> nan_direction(s.rank, Matrix<Model>::numbers(count));
  Held<R, float> direction(s.rank, Matrix<float>::numbers(count));
  enqueue(s.rank.stream, AdamWStep<Model>{.step = s.decision,
                                          .main = s.w.tensor(),
                                          .first_moment = s.m,
                                          .second_moment = s.v,
                                          .gradient = nan,
                                          .model = s.written()});
  s.expect_step(1e-300);
  s.forget_model();
  enqueue(
      s.rank.stream,
      SgdStep<Model>{.step = s.decision, .main = s.w.tensor(), .momentum = s.m, .gradient = nan, .model = s.written()});
  s.expect_step(1e-300);
  enqueue(s.rank.stream, MomentumDirection{.step = s.decision, .gradient = nan, .state = s.m, .direction = direction});
  EXPECT_EQ(direction.values(), Values(static_cast<std::size_t>(count)));
  s.forget_model();
  enqueue(
      s.rank.stream,
      DirectionStep<Model>{.step = s.decision, .direction = nan_direction, .main = s.w.tensor(), .model = s.written()});
  s.expect_step(1e-300);
}

/// The gathered inputs of a decision: each rank's sums, and for each of its norms the largest magnitude and exact sum.
struct GatheredSums {
  std::vector<double> sums;
  std::int64_t ranks = 1;
  std::vector<std::int64_t> largest = {}, exact = {};
};

template <class R>
StepDecision decided(R& rank, DecideStep op, const StepInputs& inputs, const GatheredSums& all,
                     const StepDecision& before = {}) {
  const Listed<R, StepInputs> of_step(rank, {inputs});
  const Listed<R, double> sums(rank, all.sums);
  const Listed<R, std::int64_t> largest(rank, all.largest), exact(rank, all.exact);
  const Listed<R, StepDecision> decision(rank, {before});
  op.inputs = of_step;
  op.sums = sums.shaped({all.ranks, std::ssize(all.sums) / all.ranks});
  if (!all.largest.empty()) {
    op.largest = largest.shaped({all.ranks, 1 + op.apart});
    op.exact = exact.shaped({all.ranks, 2 * (1 + op.apart)});
  }
  op.step = decision;
  enqueue(rank.stream, op);
  return decision.back().front();
}

/// Checks that the sum accumulates in double and that a second run is bit-identical.
template <class R>
void expect_sum_of_squares(const Case& c, std::int64_t count) {
  SCOPED_TRACE(message(c.text(), ", ", count, " elements"));
  R rank(c);
  const Held<R, float> x(rank, Matrix<float>::random_numbers(1, count), c.offset);
  const Listed<R, double> sum(rank, {2}), again(rank, {2});
  for (const auto* const to : {&sum, &again}) enqueue(rank.stream, SumOfSquares{.x = x, .sum = *to});
  EXPECT_NEAR(sum.back()[0] / (2 + dot(x.values(), x.values())), 1, 1e-12);
  EXPECT_EQ(sum.back(), again.back());
}

}  // namespace fsdp::device::reference
