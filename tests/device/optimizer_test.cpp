// SPDX-License-Identifier: Apache-2.0
#include <cstring>

#include "reference.hpp"

namespace fsdp::device {
namespace {

using namespace reference;

const AdamWStep third_step{.lr = 0.01f,
                           .weight_decay = 0.1f,
                           .gradient_scale = 0.25f,
                           .correction1 = 1 - 0.9f * 0.9f * 0.9f,
                           .correction2 = 1 - 0.95f * 0.95f * 0.95f};

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
      adamw_reference(third_step, w_expected, m_expected, v_expected, g.values());
      Cpu::adamw(rank.stream, third_step, w.vector(), m.vector(), v.vector(), g.vector_input(), model.vector());
      EXPECT_LT(difference(w.values(), w_expected), 1e-6);
      EXPECT_LT(difference(m.values(), m_expected), 1e-6);
      EXPECT_LT(difference(v.values(), v_expected), 1e-6);
      for (std::int64_t i = 0; i < count; ++i) ASSERT_EQ(model.at(0, i).bits, bf16(w.at(0, i)).bits);
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
  Cpu::adamw(rank.stream, third_step, w.vector(), m.vector(), v.vector(), g.vector_input(), model.vector());
  Cpu::adamw(rank.stream, third_step, w2.vector(), m2.vector(), v2.vector(), g.vector_input(), {});
  EXPECT_EQ(w.values(), w2.values());
}

TEST(SumOfSquares, HasTheSameBitsForAnyNumberOfThreads) {
  for (const std::int64_t count : {0, 1, 3, 7, 15, 257, 16384, 40000}) {
    const auto x = Matrix<float>::random(1, 1, count);
    const Values values = x.values();
    std::vector<double> sums;
    for (const int threads : team_sizes()) {
      Rank rank(threads);
      double sum = 2;
      Cpu::sum_of_squares(rank.stream, x.vector_input(), {&sum, {1}});
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
  Cpu::sum_of_squares(rank.stream, x.vector_input(), {&sum, {1}});
  EXPECT_NEAR(sum / 1e60, 1, 1e-6);
  x.at(0, 39) = std::numeric_limits<float>::quiet_NaN();
  Cpu::sum_of_squares(rank.stream, x.vector_input(), {&sum, {1}});
  EXPECT_TRUE(std::isnan(sum));
}

}  // namespace
}  // namespace fsdp::device
