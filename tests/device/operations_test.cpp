// SPDX-License-Identifier: Apache-2.0
/// Operations on activations and matmuls compared with float64, in float and bf16.
#include "activations.hpp"

namespace fsdp::device {
namespace {

using namespace reference;

template <class T>
class Operations : public ::testing::Test {};
using Types = ::testing::Types<float, bf16>;
TYPED_TEST_SUITE(Operations, Types);

TYPED_TEST(Operations, RmsNormOfRowsAndHeadsMatchesTheReference) { expect_norms<TypeParam, Rank>(); }

TEST(Operations, RmsNormWithAWeightInFloatRoundsOnce) { expect_norms<bf16, Rank, float>(); }

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

TYPED_TEST(Operations, RopeRotatesHalvesWithinDocumentsForwardAndBackward) {
  expect_rope<TypeParam, Rank>({});
  expect_rope<TypeParam, Rank>(std::vector<std::int64_t>{0, 5, 5, 12, 13, 24});
}

TYPED_TEST(Operations, SwiGluMatchesTheReferenceForwardAndBackward) { expect_swiglu<TypeParam, Rank>(); }

TYPED_TEST(Operations, SwiGluPropagatesNanAndStaysFiniteAtExtremes) {
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

TYPED_TEST(Operations, AddCopyAndFillWriteEveryElementAndNoPadding) { expect_add_copy_and_fill<TypeParam, Rank>(); }

TYPED_TEST(Operations, AddsABiasToEveryRowAndItsGradientSumsTheRows) { expect_bias<TypeParam, Rank>(); }

TYPED_TEST(Operations, ScaleMultipliesAndOverwritesOrAccumulates) {
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

/// Dropout selects elements by their position in the whole matrix: the same ones in any part of it, about as many as
/// the rate requires, and different ones for another key.
TYPED_TEST(Operations, DropoutOmitsTheSameElementsHoweverTheTensorIsSplit) {
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

TYPED_TEST(Operations, RmsNormPropagatesNan) {
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

TEST(RmsNorm, RefusesAWeightWhoseSizeDoesNotDivideARow) {
  Rank rank(1);
  Matrix<float> x(2, 10);
  auto w = Matrix<float>::numbers(4), rstd = w;
  EXPECT_THROW(enqueue(rank.stream, RmsNorm<float>{.x = x, .weight = w, .y = x, .rstd = rstd}), LogicError);
}

/// The rotary table of positions [0, 64) for a head size of 16, as float64: cos, then sin.
Values table_of(double theta, const RotaryScaling& scaling) {
  Rank rank(1);
  Matrix<float> table(64, 16);
  enqueue(rank.stream, RotaryTable{.theta = static_cast<float>(theta), .scaling = scaling, .table = table});
  return table.values();
}

/// The expected table for given frequencies.
Values table_of(const std::vector<double>& frequencies, double magnitude) {
  Values values;
  for (int position = 0; position < 64; ++position) {
    for (const double f : frequencies) values.push_back(magnitude * std::cos(position * f));
    for (const double f : frequencies) values.push_back(magnitude * std::sin(position * f));
  }
  return values;
}

TEST(RotaryTable, ScalesFrequenciesAsInThePapers) {
  using Kind = RotaryScaling::Kind;
  constexpr double two_pi = 6.283185307179586;
  std::vector<double> plain, linear, llama3, yarn;
  for (int i = 0; i < 8; ++i) {
    const double f = std::pow(100.0, -i / 8.0), wavelength = two_pi / f;
    plain.push_back(f);
    linear.push_back(f / 4);
    // With 32 original positions: wavelengths below 8 are fast (high factor 4), above 32 slow (low factor 1).
    const double smooth = (32 / wavelength - 1) / (4.0 - 1);
    llama3.push_back(wavelength < 8 ? f : wavelength > 32 ? f / 8 : (1 - smooth) * f / 8 + smooth * f);
    const double ramp = std::clamp((i - 2) / (6.0 - 2), 0.0, 1.0);
    yarn.push_back(f / 4 * ramp + f * (1 - ramp));
  }
  const auto expect = [](const RotaryScaling& scaling, const Values& expected) {
    EXPECT_LT(difference(table_of(100, scaling), expected), 1e-6);
  };
  expect({}, table_of(plain, 1));
  expect({.kind = Kind::linear, .factor = 4}, table_of(linear, 1));
  expect({.kind = Kind::llama3, .factor = 8, .low = 1, .high = 4, .original = 32}, table_of(llama3, 1));
  expect({.kind = Kind::yarn, .factor = 4, .low = 2, .high = 6, .magnitude = 1.25}, table_of(yarn, 1.25));
}

// ---- Matmuls

template <class A, class C>
struct Pair {
  using Operands = A;
  using Result = C;
};
template <class P>
class MatmulOf : public ::testing::Test {};
using Pairs = ::testing::Types<Pair<float, float>, Pair<bf16, bf16>, Pair<bf16, float>>;
TYPED_TEST_SUITE(MatmulOf, Pairs);

TYPED_TEST(MatmulOf, MatchesTheReferenceForAllTransposesStridesAndWrites) {
  for (const Case& c : Rank::variants()) {
    Rank rank(c, 16 << 20);
    expect_products<typename TypeParam::Operands, typename TypeParam::Result>(
        rank, {{1, 1, 1}, {1, 7, 3}, {3, 1, 15}, {7, 15, 1}, {15, 257, 7}, {257, 3, 64}, {64, 96, 257}, {4, 33, 1031}});
  }
}

TEST(Matmul, WithAnInnerSizeOfZeroWritesZerosOrAddsNothing) {
  Rank rank(1);
  const Tensor<const float> a(nullptr, {2, 0}), b(nullptr, {0, 3});
  auto c = Matrix<float>::random(1, 2, 3, 2);
  const Values before = c.values();
  enqueue(rank.stream, Matmul<float>{.a = a, .b = b, .c = c.view(), .write = Write::accumulate});
  EXPECT_EQ(c.values(), before);
  enqueue(rank.stream, Matmul<float>{.a = a, .b = b, .c = c.view()});
  EXPECT_EQ(c.values(), Values(6, 0));
  EXPECT_TRUE(c.gaps_untouched());
  enqueue(rank.stream,
          Matmul<float>{.a = Tensor<const float>(nullptr, {0, 2}), .b = c.input(), .c = {nullptr, {0, 3}}});
}

TEST(Matmul, CountsFlopsAndRecordsItsShapes) {
  Rank rank(1);
  std::vector<MatmulRecord> records;
  rank.stream.counters.matmuls = &records;
  const auto a = Matrix<bf16>::random(1, 4, 3), b = Matrix<bf16>::random(2, 5, 4);
  Matrix<float> c(3, 5);
  enqueue(rank.stream, Matmul<bf16, float>{.a = transposed(a.view()), .b = transposed(b.view()), .c = c.view()});
  EXPECT_EQ(rank.stream.counters.matmul_flops, 2 * 3 * 5 * 4);
  ASSERT_EQ(records.size(), 1u);
  EXPECT_EQ(records[0].m, 3);
  EXPECT_EQ(records[0].n, 5);
  EXPECT_EQ(records[0].k, 4);
  EXPECT_TRUE(records[0].a_transposed && records[0].b_transposed && !records[0].accumulate);
  EXPECT_TRUE(records[0].operands == DType::bf16 && records[0].result == DType::f32);
}

TEST(Matmul, RefusesMismatchedShapes) {
  Rank rank(1);
  const auto a = Matrix<float>::random(1, 2, 3), b = Matrix<float>::random(2, 2, 3);
  Matrix<float> c(2, 3);
  EXPECT_THROW((enqueue(rank.stream, Matmul<float>{.a = a.view(), .b = b.view(), .c = c.view()})), LogicError);
}

}  // namespace
}  // namespace fsdp::device
