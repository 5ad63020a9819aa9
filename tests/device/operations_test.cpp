// SPDX-License-Identifier: Apache-2.0
/// Operations on activations against float64, in float and bf16.
#include "activations.hpp"

namespace fsdp::device {
namespace {

using namespace reference;

template <class T>
class Operations : public ::testing::Test {};
using Types = ::testing::Types<float, bf16>;
TYPED_TEST_SUITE(Operations, Types);

TYPED_TEST(Operations, RmsNormOfRowsAndOfHeadsAndItsBackwardAreTheReference) { expect_norms<TypeParam, Rank>(); }

TEST(References, AgreeWithFiniteDifferences) {
  const auto x = Matrix<float>::random(1, 3, 14).values(), w = Matrix<float>::random(2, 1, 7).values();
  const Values dy = Matrix<float>::random(3, 3, 14).values();
  const NormGradients norm = norm_gradients(x, w, dy, 1e-5);
  const auto of_x = [&](const Values& at) { return dot(norm_reference(at, w, 1e-5), dy); };
  const auto of_w = [&](const Values& at) { return dot(norm_reference(x, at, 1e-5), dy); };
  EXPECT_LT(difference(norm.dx, finite_differences(of_x, x)), 1e-8);
  EXPECT_LT(difference(norm.dw, finite_differences(of_w, w)), 1e-8);
  const std::vector<std::int32_t> targets = {11, -1, 0};
  const auto loss = [&](const Values& at) { return cross_entropy_reference(at, targets, 1).loss; };
  EXPECT_LT(difference(cross_entropy_reference(x, targets, 1).gradient, finite_differences(loss, x)), 1e-8);
}

TYPED_TEST(Operations, RopeRotatesByHalvesWithinDocumentsAndBack) {
  expect_rope<TypeParam, Rank>({});
  expect_rope<TypeParam, Rank>(std::vector<std::int64_t>{0, 5, 5, 12, 13, 24});
}

TYPED_TEST(Operations, SwiGluAndItsBackwardAreTheReference) { expect_swiglu<TypeParam, Rank>(); }

TYPED_TEST(Operations, SwiGluKeepsNanAndStaysFiniteAtExtremes) {
  using T = TypeParam;
  Rank rank(1);
  const float nan = std::numeric_limits<float>::quiet_NaN();
  Matrix<T> gate(1, 5), up(1, 5), h(1, 5);
  gate.set(std::vector{nan, 1e4f, -1e4f, -95.0f, 100.0f});
  up.set([](std::int64_t) { return 1.0; });
  enqueue(rank.stream, SwiGlu<T>{.gate = gate, .up = up, .h = h});
  EXPECT_TRUE(std::isnan(h.at(0, 0)));
  EXPECT_NEAR(h.at(0, 1) / 1e4, 1, 0.01);
  EXPECT_EQ(h.at(0, 2), 0);
  EXPECT_NEAR(h.at(0, 3), 0, 1e-38);
  EXPECT_NEAR(h.at(0, 4) / 100, 1, 0.01);
}

TYPED_TEST(Operations, AddCopyAndFillCoverEveryElementAndNoGap) { expect_add_copy_and_fill<TypeParam, Rank>(); }

TYPED_TEST(Operations, ABiasIsAddedToEveryRowAndItsGradientIsTheSumOfRows) { expect_bias<TypeParam, Rank>(); }

TYPED_TEST(Operations, ScaleMultipliesOverwritesAndAdds) {
  using T = TypeParam;
  for (const Case& c : Rank::cases()) {
    SCOPED_TRACE(c.text());
    Rank rank(c);
    const auto x = Matrix<T>::random(1, c.rows, c.columns, c.gap);
    auto y = Matrix<T>::random(2, c.rows, c.columns, 2 * c.gap);
    auto wide = Matrix<float>::random(3, c.rows, c.columns, c.gap);
    const Values expected = combined(0.75, x.values(), 1, y.values());
    const Values expected_wide = combined(0.75, x.values(), 1, wide.values());
    enqueue(rank.stream, Scale<T>{.x = x, .y = y, .factor = 0.75f, .write = Write::accumulate});
    EXPECT_LT(difference(y.values(), expected), tolerance<T>());
    enqueue(rank.stream, Scale<T, float>{.x = x, .y = wide, .factor = 0.75f, .write = Write::accumulate});
    EXPECT_LT(difference(wide.values(), expected_wide), 1e-6);
    enqueue(rank.stream, Scale<T>{.x = y, .y = y, .factor = 0});
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
    enqueue(rank.stream, Scale<T>{.x = x, .y = y, .factor = 0.7f, .dropout = dropout});
    EXPECT_TRUE(y.gaps_untouched());
    return y.values();
  };
  const Values whole = one_of(7, 0, 0, rows, columns, 1);
  for (const double value : whole) EXPECT_TRUE(value == 0 || std::abs(value - 1) < 0.01) << value;
  const auto left_out = static_cast<double>(std::ranges::count(whole, 0));
  EXPECT_NEAR(left_out / static_cast<double>(whole.size()), 0.3, 0.03);
  EXPECT_NE(one_of(8, 0, 0, rows, columns, 1), whole);
  for (const int threads : {1, 3})
    for (const auto& [row, column, part_rows, part_columns] :
         {std::array<std::int64_t, 4>{0, 0, rows, columns}, {5, 0, 17, columns}, {60, 76, 1, 1}, {3, 33, 40, 19}}) {
      const Tensor<const double> expected(whole.data(), {rows, columns});
      Values part;
      for (std::int64_t r = row; r < row + part_rows; ++r)
        part.insert(part.end(), expected.row(r) + column, expected.row(r) + column + part_columns);
      ASSERT_EQ(one_of(7, row, column, part_rows, part_columns, threads), part);
    }
}

TYPED_TEST(Operations, RmsNormShowsNan) {
  using T = TypeParam;
  Rank rank(1);
  auto x = Matrix<T>::random(1, 2, 40);
  const auto w = Matrix<T>::random_numbers(2, 40);
  x.at(1, 39) = T(std::numeric_limits<float>::quiet_NaN());
  Matrix<T> y(2, 40);
  auto rstd = Matrix<float>::numbers(2);
  enqueue(rank.stream, RmsNorm<T>{.x = x, .weight = w, .eps = 1e-5f, .y = y, .rstd = rstd});
  EXPECT_TRUE(std::isfinite(rstd.at(0, 0)) && std::isnan(rstd.at(0, 1)) && std::isnan(y.at(1, 0)));
}

TEST(RmsNorm, RefusesAWeightThatDividesNoRow) {
  Rank rank(1);
  Matrix<float> x(2, 10);
  auto w = Matrix<float>::numbers(4), rstd = w;
  EXPECT_THROW(enqueue(rank.stream, RmsNorm<float>{.x = x, .weight = w, .y = x, .rstd = rstd}), LogicError);
}

}  // namespace
}  // namespace fsdp::device
