// SPDX-License-Identifier: Apache-2.0
/// The per-element arithmetic of the CUDA kernels, run on the host and compared with float64.
#include "src/fsdp/device/cuda/arithmetic.cuh"

#include <algorithm>
#include <bit>
#include <cfloat>
#include <cmath>
#include <cstdint>
#include <limits>
#include <vector>

#include "reference.hpp"
#include "steps.hpp"

namespace fsdp::device::cuda {
namespace {

using reference::Matrix;
using reference::number_at;
using reference::Values;

constexpr float infinity = std::numeric_limits<float>::infinity();
const float nan = std::nanf("");

/// Random numbers of all magnitudes that activations have, and edge cases.
std::vector<float> inputs(std::uint64_t seed) {
  std::vector<float> list = {0.0f, -0.0f, 1.0f, -1.0f, 88.0f, -88.0f, 1e4f, -1e4f, 1e-40f, -1e-40f, FLT_MIN, 3e38f};
  for (std::uint64_t i = 0; i < 2000; ++i) {
    const double size = std::pow(10.0, 6 * number_at(seed, 2 * i) - 4);
    list.push_back(static_cast<float>(size * number_at(seed, 2 * i + 1)));
  }
  return list;
}

/// Expects |found - expected| within `relative` of the larger of |expected| and `size`. Subnormals may be flushed to
/// zero.
void expect_near(double found, double expected, double relative, double size = 0) {
  if (!std::isfinite(static_cast<float>(expected))) return;
  EXPECT_LE(std::abs(found - expected), relative * std::max(std::abs(expected), size) + 2 * FLT_MIN)
      << found << " for " << expected;
}

double reference_silu(double x) { return x / (1 + std::exp(-x)); }

TEST(CudaArithmetic, NarrowRoundsAsTheStorageTypesDo) {
  for (std::uint64_t i = 0; i < 200000; ++i) {
    const auto word = static_cast<std::uint32_t>((number_at(1, i) + 1) * 0x1p31);
    const float x = std::bit_cast<float>(word);
    ASSERT_EQ(narrow<bf16>(x).bits, bf16(x).bits);
    ASSERT_EQ(narrow<f16>(x).bits, f16(x).bits);
    ASSERT_EQ(std::bit_cast<std::uint32_t>(narrow<float>(x)), word);
  }
  for (std::uint32_t bits = 0; bits < 0x10000; ++bits) {
    const auto half = bf16::from_bits(static_cast<std::uint16_t>(bits));
    if (!std::isnan(widen(half))) {
      ASSERT_EQ(narrow<bf16>(widen(half)).bits, bits);
    }
    const auto ieee = f16::from_bits(static_cast<std::uint16_t>(bits));
    if (!std::isnan(widen(ieee))) {
      ASSERT_EQ(narrow<f16>(widen(ieee)).bits, bits);
    }
  }
  EXPECT_EQ(narrow<bf16>(std::bit_cast<float>(0x3f808000u)).bits, 0x3f80);  // a tie, down to even
  EXPECT_EQ(narrow<bf16>(std::bit_cast<float>(0x3f818000u)).bits, 0x3f82);  // a tie, up to even
  EXPECT_EQ(narrow<f16>(65519.0f).bits, 0x7bff);
  EXPECT_EQ(narrow<f16>(65520.0f).bits, 0x7c00);
}

TEST(CudaArithmetic, SwiGluMatchesTheReferenceWithinFourRoundings) {
  const std::vector<float> gates = inputs(1), ups = inputs(2), gradients = inputs(3);
  for (std::size_t i = 0; i < gates.size(); ++i) {
    const double g = gates[i], u = ups[i], d = gradients[i];
    if (std::abs(g * u) > 1e38 || std::abs(d * u * g) > 1e30) continue;
    // Below -80, e^-x is near the largest float, and silu is a subnormal with few correct bits.
    const double small = g < -80 ? 1e-30 * std::max(1.0, std::abs(u)) * std::max(1.0, std::abs(d)) : 0;
    expect_near(swiglu(gates[i], ups[i]), reference_silu(g) * u, 1e-6, small * 1e6);
    float gate = gates[i], up = ups[i], dh = gradients[i];
    swiglu_backward(gate, up, dh);
    const double sigma = 1 / (1 + std::exp(-g));
    EXPECT_EQ(dh, swiglu(gates[i], ups[i]));
    expect_near(up, d * reference_silu(g), 1e-6, small * 1e6);
    // 1 + g (1 - sigma) has a zero; near it, the error is relative to its two terms.
    expect_near(gate, d * u * sigma * (1 + g * (1 - sigma)), 1e-6,
                std::abs(d * u * sigma) * (1 + std::abs(g) * (1 - sigma)) + small * 1e6);
  }
  EXPECT_TRUE(std::isnan(silu(nan)) && std::isnan(swiglu(1, nan)));
  EXPECT_EQ(silu(infinity), infinity);
  EXPECT_EQ(silu(-1e30f), 0);
}

TEST(CudaArithmetic, RmsNormOfARowMatchesTheReferenceForwardAndBackward) {
  constexpr std::size_t columns = 257;
  for (const double size : {1e-10, 1e-3, 1.0, 1e4}) {
    const auto x = Matrix<float>::random_numbers(1, columns, size), w = Matrix<float>::random_numbers(2, columns);
    const auto dy = Matrix<float>::random_numbers(3, columns);
    const Values xs = x.values(), ws = w.values(), dys = dy.values();
    const double rstd = reference::rstd_reference(xs, columns, static_cast<double>(1e-5f))[0];
    const Values expected = reference::norm_gradients(xs, ws, dys, static_cast<double>(1e-5f)).dx;
    float sum = 0;
    double dot = 0;
    for (std::size_t i = 0; i < columns; ++i) {
      sum += static_cast<float>(xs[i] * xs[i]);
      dot += dys[i] * ws[i] * xs[i] * rstd / columns;
    }
    const float found = rms_scale(sum, columns, 1e-5f);
    expect_near(found, rstd, 3e-6);
    for (std::size_t i = 0; i < columns; ++i)
      expect_near(rms_norm_dx(static_cast<float>(xs[i]), static_cast<float>(ws[i]), static_cast<float>(dys[i]), found,
                              static_cast<float>(dot)),
                  expected[i], 1e-5, rstd);
  }
  EXPECT_TRUE(std::isnan(rms_scale(nan, 3, 1e-5f)));
  EXPECT_EQ(rms_scale(infinity, 3, 1e-5f), 0);
}

TEST(CudaArithmetic, RotationIsUndoneByItsInverse) {
  for (std::uint64_t i = 0; i < 500; ++i) {
    const double position = std::floor(1e6 * (number_at(1, i) + 1)), pair = static_cast<double>(i % 64);
    const double angle = position * std::pow(5e5, -pair / 64);
    const auto cos = static_cast<float>(std::cos(angle)), sin = static_cast<float>(std::sin(angle));
    float low = static_cast<float>(number_at(2, i)), high = static_cast<float>(number_at(3, i));
    const double a = low, b = high;
    rotate(low, high, cos, sin);
    EXPECT_NEAR(low, a * std::cos(angle) - b * std::sin(angle), 4e-7);
    EXPECT_NEAR(high, b * std::cos(angle) + a * std::sin(angle), 4e-7);
    rotate(low, high, cos, -sin);
    EXPECT_NEAR(low, a, 8e-7);
    EXPECT_NEAR(high, b, 8e-7);
  }
}

/// Reduces a row as the threads of a block do: each thread folds every `threads`-th logit, then the states are merged.
Softmax fold(const std::vector<float>& logits, std::size_t threads) {
  std::vector<Softmax> states(threads);
  for (std::size_t i = 0; i < logits.size(); ++i) states[i % threads].add(logits[i]);
  for (std::size_t t = 1; t < threads; ++t) states[0].add(states[t]);
  return states[0];
}

TEST(CudaArithmetic, OnlineSoftmaxMatchesTheReferenceInAnyOrder) {
  for (const double size : {1e-3, 1.0, 30.0, 1000.0})
    for (const std::size_t threads : {1, 3, 32, 500}) {
      std::vector<float> logits(333);
      std::ranges::generate(logits, [&, i = 0]() mutable { return static_cast<float>(size * number_at(4, i++)); });
      const double most = *std::max_element(logits.begin(), logits.end());
      const auto expected = reference::cross_entropy_reference(Values(logits.begin(), logits.end()), {7}, 0.5);
      const double sum = std::exp(expected.loss - most + logits[7]);
      const Softmax found = fold(logits, threads);
      EXPECT_EQ(found.maximum, most);
      expect_near(found.sum, sum, 1e-5);
      expect_near(negative_log_likelihood(found.maximum, found.sum, logits[7]), expected.loss, 1e-5, 1);
      for (const float logit : logits) {
        const double p = std::exp(logit - most) / sum;
        expect_near(softmax_gradient(logit, found.maximum, 0.5f / found.sum), 0.5 * p, 1e-5);
        expect_near(target_gradient(logit, found.maximum, sum, 0.5f), 0.5 * (p - 1), 1e-6);
      }
    }
}

TEST(CudaArithmetic, SoftmaxIgnoresMaskedLogitsAndPropagatesNonFiniteOnes) {
  for (const std::size_t threads : {1, 2, 5}) {
    EXPECT_EQ(fold({-infinity, -infinity, 2.0f, -infinity}, threads).sum, 1);
    for (const float bad : {nan, infinity})
      for (const std::size_t at : {0, 1, 2, 3}) {
        std::vector<float> logits = {1, 2, 3, 4};
        logits[at] = bad;
        EXPECT_TRUE(std::isnan(fold(logits, threads).sum)) << bad << " at " << at;
      }
  }
  EXPECT_TRUE(std::isnan(fold({infinity}, 1).sum));
}

TEST(CudaArithmetic, AdamWMatchesTheReferenceOverManySteps) {
  Values w64 = {0.3}, m64 = {0}, v64 = {0};
  float w = 0.3f, m = 0, v = 0;
  const AdamWRules rules{.weight_decay = 0.1f};
  for (int t = 1; t <= 200; ++t) {
    StepDecision step{.taken = t - 1};
    const double sums[] = {0, 16};
    decide_step({.clip = 1}, {.lr = 0.01}, {.sums = sums, .ranks = 1, .columns = 2}, step);
    const auto gradient = static_cast<float>(5 * number_at(5, t));
    adamw(AdamWFactors(rules, step), w, m, v, gradient);
    reference::adamw_reference(rules, {.taken = t, .lr = 0.01, .gradient_scale = 0.25f}, w64, m64, v64, {gradient});
    expect_near(m, m64[0], 1e-6, 1);
    expect_near(v, v64[0], 1e-6, 1);
    expect_near(w, w64[0], 4e-6, 1);
  }
  adamw(AdamWFactors({}, {.taken = 1, .lr = 0.01}), w, m, v, nan);
  EXPECT_TRUE(std::isnan(w) && std::isnan(m) && std::isnan(v));
}

TEST(CudaArithmetic, AdamWBiasCorrectionsNormaliseTheMoments) {
  for (const double beta : {0.0, 0.9, 0.95, 0.99, 0.999, 0.9999, 0.99999}) {
    double moment = 0, power = 1;  // for gradients of 1: (1 - beta) sum beta^k = 1 - beta^t
    for (int t = 1; t <= 3000; ++t) {
      const AdamWFactors factors({.beta1 = beta, .beta2 = beta}, {.taken = t, .lr = 1});
      moment += static_cast<double>(factors.one_minus_beta2) * power;
      power *= static_cast<double>(factors.beta2);
      ASSERT_NEAR(moment / (1 - power), 1, 1e-7) << beta << " at " << t;
      ASSERT_NEAR(static_cast<double>(factors.root_scale) * std::sqrt(moment), 1, 1e-7) << beta << " at " << t;
      ASSERT_NEAR(static_cast<double>(factors.step_size) * moment, 1, 1e-7) << beta << " at " << t;
    }
  }
}

TEST(CudaArithmetic, AdamWKeepsTheWeightIfGradientAndMomentsAreZero) {
  float w = 2, m = 0, v = 0;
  adamw(AdamWFactors({}, {.taken = 1, .lr = 0.01}), w, m, v, 0);
  EXPECT_EQ(w, 2);
  EXPECT_EQ(v, 0);
}

TEST(CudaArithmetic, AContributionIsRoundedToTheWireTypeOnce) {
  const float x = 1.0f + 0x1p-9f;
  EXPECT_EQ((contribution<float, float>(x)), x);
  EXPECT_EQ((contribution<float, bf16>(x)), 1);
  EXPECT_EQ((contribution<float, f16>(x)), x);
  EXPECT_EQ((contribution<bf16, float>(bf16(3.0f))), 3);
  EXPECT_TRUE(std::isnan(contribution<float, bf16>(nan)));
}

}  // namespace
}  // namespace fsdp::device::cuda
