// SPDX-License-Identifier: Apache-2.0
/// Operations on activations against float64, in float and bf16.
#include "reference.hpp"

namespace fsdp::device {
namespace {

using namespace reference;

template <class T>
class Operations : public ::testing::Test {};
using Types = ::testing::Types<float, bf16>;
TYPED_TEST_SUITE(Operations, Types);

TYPED_TEST(Operations, RmsNormIsTheReferenceWithinRounding) {
  using T = TypeParam;
  for (const Case& c : cases()) {
    Rank rank(c.threads);
    const auto x = Matrix<T>::random(1, c.rows, c.columns, c.gap, 3), w = Matrix<T>::random(2, 1, c.columns);
    Matrix<T> y(c.rows, c.columns, c.gap);
    Matrix<float> rstd(1, c.rows);
    enqueue(rank.stream,
            RmsNorm<T>{.x = x.view(), .weight = w.vector_input(), .eps = 1e-5f, .y = y.view(), .rstd = rstd.vector()});
    EXPECT_LT(difference(y.values(), norm_reference(x.values(), w.values(), 1e-5f)), 2 * tolerance<T>());
    EXPECT_TRUE(y.gaps_untouched());
  }
}

TYPED_TEST(Operations, RmsNormBackwardIsTheFiniteDifferenceAndMayAccumulateOverDy) {
  using T = TypeParam;
  for (const Case& c : cases()) {
    if (c.rows * c.columns > 1100) continue;
    for (const bool in_place : {false, true})
      for (const Write write : {Write::overwrite, Write::accumulate}) {
        Rank rank(c.threads);
        const auto x = Matrix<T>::random(1, c.rows, c.columns, c.gap), w = Matrix<T>::random(2, 1, c.columns);
        auto dy = Matrix<T>::random(3, c.rows, c.columns, c.gap);
        Matrix<T> y(c.rows, c.columns), dx(c.rows, c.columns, 2 * c.gap);
        Matrix<float> rstd(1, c.rows), dw(1, c.columns);
        const bool adds = write == Write::accumulate;
        if (adds) dx = Matrix<T>::random(4, c.rows, c.columns, 2 * c.gap), dw = Matrix<float>::random(5, 1, c.columns);
        enqueue(
            rank.stream,
            RmsNorm<T>{.x = x.view(), .weight = w.vector_input(), .eps = 1e-5f, .y = y.view(), .rstd = rstd.vector()});
        const Values seed = dy.values();
        Matrix<T>& out = in_place ? dy : dx;
        const Values dx_before = out.values(), dw_before = dw.values();
        enqueue(rank.stream, RmsNormBackward<T>{.x = x.view(),
                                                .weight = w.vector_input(),
                                                .rstd = rstd.vector(),
                                                .dy = dy.input(),
                                                .dx = out.view(),
                                                .dx_write = write,
                                                .dw = dw.vector(),
                                                .dw_write = write});
        Values dx_expected = finite_differences(
            [&](const Values& at) { return dot(norm_reference(at, w.values(), 1e-5f), seed); }, x.values());
        Values dw_expected = finite_differences(
            [&](const Values& at) { return dot(norm_reference(x.values(), at, 1e-5f), seed); }, w.values());
        if (adds) dx_expected = plus(dx_expected, dx_before), dw_expected = plus(dw_expected, dw_before);
        // With one column dx is a difference of equal numbers.
        EXPECT_LT(difference(out.values(), dx_expected), c.columns == 1 ? 1e9 : 2 * tolerance<T>());
        EXPECT_LT(difference(dw.values(), dw_expected), 4e-6);
        EXPECT_TRUE(out.gaps_untouched());
      }
  }
}

TEST(RmsNorm, BackwardOfManyRowsIsTheSumOverRowsForAnyNumberOfThreads) {
  const Case c{67, 1031, 3, 3};
  const auto x = Matrix<float>::random(1, c.rows, c.columns, c.gap), w = Matrix<float>::random(2, 1, c.columns);
  const auto dy = Matrix<float>::random(3, c.rows, c.columns, c.gap);
  Values expected(static_cast<std::size_t>(c.columns));
  const Values ones(expected.size(), 1.0), normalised = norm_reference(x.values(), ones, 1e-5f), seed = dy.values();
  for (std::size_t i = 0; i < seed.size(); ++i) expected[i % expected.size()] += seed[i] * normalised[i];
  for (const int threads : team_sizes()) {
    Rank rank(threads);
    Matrix<float> y(c.rows, c.columns), dx(c.rows, c.columns), rstd(1, c.rows), dw(1, c.columns);
    enqueue(
        rank.stream,
        RmsNorm<float>{.x = x.view(), .weight = w.vector_input(), .eps = 1e-5f, .y = y.view(), .rstd = rstd.vector()});
    enqueue(rank.stream, RmsNormBackward<float>{.x = x.view(),
                                                .weight = w.vector_input(),
                                                .rstd = rstd.vector(),
                                                .dy = dy.view(),
                                                .dx = dx.view(),
                                                .dx_write = Write::overwrite,
                                                .dw = dw.vector(),
                                                .dw_write = Write::overwrite});
    EXPECT_LT(difference(dw.values(), expected), 2e-6);
  }
}

TYPED_TEST(Operations, RopeRotatesByHalvesAndBackwardRotatesBack) {
  using T = TypeParam;
  for (const std::int64_t head_dim : {2, 6, 14, 30, 64, 514})
    for (const int threads : team_sizes()) {
      Rank rank(threads);
      const std::int64_t positions = 5, tokens = 10, heads = 3, half = head_dim / 2;
      Matrix<float> table(positions, head_dim);
      auto x = Matrix<T>::random(1, tokens, heads * head_dim, 4);
      const Values before = x.values();
      enqueue(rank.stream, RotaryTable{.theta = 1e4f, .table = table.view()});
      enqueue(rank.stream, Rope<T>{.x = x.view(), .table = table.view(), .rotation = Rotation::forward});
      Values expected = before;
      for (std::int64_t t = 0; t < tokens; ++t)
        for (std::int64_t i = 0; i < heads * head_dim; ++i) {
          if (i % head_dim >= half) continue;
          const double exponent = -2.0 * static_cast<double>(i % head_dim) / static_cast<double>(head_dim);
          const double angle = static_cast<double>(t % positions) * std::pow(1e4, exponent);
          const auto low = static_cast<std::size_t>(t * heads * head_dim + i),
                     high = low + static_cast<std::size_t>(half);
          expected[low] = before[low] * std::cos(angle) - before[high] * std::sin(angle);
          expected[high] = before[high] * std::cos(angle) + before[low] * std::sin(angle);
        }
      EXPECT_LT(difference(x.values(), expected), tolerance<T>());
      enqueue(rank.stream, Rope<T>{.x = x.view(), .table = table.view(), .rotation = Rotation::backward});
      EXPECT_LT(difference(x.values(), before), 2 * tolerance<T>());
      EXPECT_TRUE(x.gaps_untouched());
    }
}

double swiglu_reference(double gate, double up) { return gate / (1 + std::exp(-gate)) * up; }

TYPED_TEST(Operations, SwiGluIsTheReferenceAndItsBackwardTheFiniteDifference) {
  using T = TypeParam;
  for (const Case& c : cases()) {
    Rank rank(c.threads);
    auto gate = Matrix<T>::random(1, c.rows, c.columns, c.gap, 12), up = Matrix<T>::random(2, c.rows, c.columns, 1);
    auto dh = Matrix<T>::random(3, c.rows, c.columns, c.gap);
    Matrix<T> h(c.rows, c.columns, c.gap);
    const Values g = gate.values(), u = up.values(), d = dh.values();
    Values h_expected, dgate_expected, dup_expected;
    for (std::size_t i = 0; i < g.size(); ++i) {
      constexpr double step = 1e-5;
      h_expected.push_back(swiglu_reference(g[i], u[i]));
      dgate_expected.push_back(d[i] * (swiglu_reference(g[i] + step, u[i]) - swiglu_reference(g[i] - step, u[i])) /
                               (2 * step));
      dup_expected.push_back(d[i] * swiglu_reference(g[i], 1));
    }
    enqueue(rank.stream, SwiGlu<T>{.gate = gate.input(), .up = up.input(), .h = h.view()});
    EXPECT_LT(difference(h.values(), h_expected), tolerance<T>());
    enqueue(rank.stream, SwiGluBackward<T>{.gate = gate.view(), .up = up.view(), .dh = dh.view()});
    EXPECT_EQ(dh.values(), h.values());
    EXPECT_LT(difference(gate.values(), dgate_expected), tolerance<T>());
    EXPECT_LT(difference(up.values(), dup_expected), tolerance<T>());
    EXPECT_TRUE(gate.gaps_untouched() && up.gaps_untouched() && dh.gaps_untouched() && h.gaps_untouched());
  }
}

TYPED_TEST(Operations, SwiGluKeepsNanAndStaysFiniteAtExtremes) {
  using T = TypeParam;
  Rank rank(1);
  const float nan = std::numeric_limits<float>::quiet_NaN();
  Matrix<T> gate(1, 5), up(1, 5), h(1, 5);
  const std::vector<float> values = {nan, 1e4f, -1e4f, -95.0f, 100.0f};
  gate.set([&](std::int64_t i) { return values[static_cast<std::size_t>(i)]; });
  up.set([](std::int64_t) { return 1.0; });
  enqueue(rank.stream, SwiGlu<T>{.gate = gate.input(), .up = up.input(), .h = h.view()});
  EXPECT_TRUE(std::isnan(h.at(0, 0)));
  EXPECT_NEAR(h.at(0, 1) / 1e4, 1, 0.01);
  EXPECT_EQ(h.at(0, 2), 0);
  EXPECT_NEAR(h.at(0, 3), 0, 1e-38);
  EXPECT_NEAR(h.at(0, 4) / 100, 1, 0.01);
}

TYPED_TEST(Operations, AddCopyAndFillCoverEveryElementAndNoGap) {
  using T = TypeParam;
  for (const Case& c : cases()) {
    Rank rank(c.threads);
    const auto x = Matrix<T>::random(1, c.rows, c.columns, c.gap);
    auto y = Matrix<T>::random(2, c.rows, c.columns, 2 * c.gap);
    Matrix<float> wide(c.rows, c.columns, c.gap);
    Matrix<bf16> narrow(c.rows, c.columns, 1);
    const Values expected = plus(x.values(), y.values());
    enqueue(rank.stream, Add<T>{.x = x.view(), .y = y.view()});
    EXPECT_LT(difference(y.values(), expected), tolerance<T>());
    enqueue(rank.stream, Copy<T, float>{.x = x.view(), .y = wide.view()});
    EXPECT_EQ(wide.values(), x.values());
    enqueue(rank.stream, Copy<T, bf16>{.x = x.view(), .y = narrow.view()});
    Matrix<bf16> rounded(c.rows, c.columns);
    const Values exact = x.values();
    rounded.set([&](std::int64_t i) { return exact[static_cast<std::size_t>(i)]; });
    EXPECT_EQ(narrow.values(), rounded.values());
    enqueue(rank.stream, Fill<T>{.y = y.view(), .value = -2});
    EXPECT_EQ(y.values(), Values(expected.size(), -2));
    EXPECT_TRUE(y.gaps_untouched() && wide.gaps_untouched() && narrow.gaps_untouched());
  }
}

TYPED_TEST(Operations, ScaleMultipliesOverwritesAndAdds) {
  using T = TypeParam;
  for (const Case& c : cases()) {
    Rank rank(c.threads);
    const auto x = Matrix<T>::random(1, c.rows, c.columns, c.gap);
    auto y = Matrix<T>::random(2, c.rows, c.columns, 2 * c.gap);
    auto wide = Matrix<float>::random(3, c.rows, c.columns, c.gap);
    Values expected = y.values(), expected_wide = wide.values(), scaled = x.values();
    for (std::size_t i = 0; i < scaled.size(); ++i) {
      scaled[i] *= 0.75;
      expected[i] += scaled[i];
      expected_wide[i] += scaled[i];
    }
    enqueue(rank.stream, Scale<T>{.x = x.view(), .y = y.view(), .factor = 0.75f, .write = Write::accumulate});
    EXPECT_LT(difference(y.values(), expected), tolerance<T>());
    enqueue(rank.stream, Scale<T, float>{.x = x.view(), .y = wide.view(), .factor = 0.75f, .write = Write::accumulate});
    EXPECT_LT(difference(wide.values(), expected_wide), 1e-6);
    enqueue(rank.stream, Scale<T>{.x = y.view(), .y = y.view(), .factor = 0});
    EXPECT_EQ(y.values(), Values(expected.size(), 0));
    EXPECT_TRUE(y.gaps_untouched() && wide.gaps_untouched());
  }
}

/// Left out are elements by their place in the whole matrix: the same ones of any part of it, about as many as asked
/// for, and other ones by another key.
TYPED_TEST(Operations, DropoutLeavesOutTheSameElementsOfEveryPart) {
  using T = TypeParam;
  constexpr std::int64_t rows = 61, columns = 77;
  constexpr float rate = 0.3f;
  const auto one_of = [](std::uint64_t key, std::int64_t row, std::int64_t column, std::int64_t part_rows,
                         std::int64_t part_columns, int threads) {
    Rank rank(threads);
    Matrix<T> x(part_rows, part_columns, 3), y(part_rows, part_columns, 5);
    x.set([](std::int64_t) { return 1.0; });
    const Dropout dropout{.rate = rate, .key = key, .first_row = row, .first_column = column};
    enqueue(rank.stream, Scale<T>{.x = x.view(), .y = y.view(), .factor = 0.7f, .dropout = dropout});
    EXPECT_TRUE(y.gaps_untouched());
    return y.values();
  };
  const Values whole = one_of(7, 0, 0, rows, columns, 1);
  std::int64_t left_out = 0;
  for (const double value : whole) {
    EXPECT_TRUE(value == 0 || std::abs(value - 1) < 0.01) << value;
    left_out += value == 0 ? 1 : 0;
  }
  EXPECT_NEAR(static_cast<double>(left_out) / static_cast<double>(whole.size()), 0.3, 0.03);
  EXPECT_NE(one_of(8, 0, 0, rows, columns, 1), whole);
  for (const int threads : {1, 3})
    for (const auto& [row, column, part_rows, part_columns] :
         {std::array<std::int64_t, 4>{0, 0, rows, columns}, {5, 0, 17, columns}, {60, 76, 1, 1}, {3, 33, 40, 19}}) {
      const Values part = one_of(7, row, column, part_rows, part_columns, threads);
      for (std::int64_t r = 0; r < part_rows; ++r)
        for (std::int64_t c = 0; c < part_columns; ++c)
          ASSERT_EQ(part[static_cast<std::size_t>(r * part_columns + c)],
                    whole[static_cast<std::size_t>((row + r) * columns + column + c)]);
    }
}

TYPED_TEST(Operations, RmsNormShowsNan) {
  using T = TypeParam;
  Rank rank(1);
  auto x = Matrix<T>::random(1, 2, 40);
  const auto w = Matrix<T>::random(2, 1, 40);
  x.at(1, 39) = T(std::numeric_limits<float>::quiet_NaN());
  Matrix<T> y(2, 40);
  Matrix<float> rstd(1, 2);
  enqueue(rank.stream,
          RmsNorm<T>{.x = x.view(), .weight = w.vector_input(), .eps = 1e-5f, .y = y.view(), .rstd = rstd.vector()});
  EXPECT_TRUE(std::isfinite(rstd.at(0, 0)) && std::isnan(rstd.at(0, 1)) && std::isnan(y.at(1, 0)));
}

}  // namespace
}  // namespace fsdp::device
