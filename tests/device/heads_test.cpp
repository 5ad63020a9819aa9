// SPDX-License-Identifier: Apache-2.0
/// What stands around a projection onto heads: its bias, the norm of each head, scaled rotary positions.
#include "reference.hpp"

namespace fsdp::device {
namespace {

using namespace reference;

template <class T>
class Heads : public ::testing::Test {};
using Types = ::testing::Types<float, bf16>;
TYPED_TEST_SUITE(Heads, Types);

TYPED_TEST(Heads, ARmsNormWithANarrowerWeightIsThatOfEachHead) {
  using T = TypeParam;
  for (const Case& c : cases()) {
    const std::int64_t heads = 3;
    if (c.columns > 257) continue;
    Rank rank(c.threads);
    const auto x = Matrix<T>::random(1, c.rows, heads * c.columns, c.gap, 3), w = Matrix<T>::random(2, 1, c.columns);
    Matrix<T> y(c.rows, heads * c.columns, c.gap);
    Matrix<float> rstd(1, heads * c.rows);
    enqueue(rank.stream,
            RmsNorm<T>{.x = x.view(), .weight = w.vector_input(), .eps = 1e-5f, .y = y.view(), .rstd = rstd.vector()});
    EXPECT_LT(difference(y.values(), norm_reference(x.values(), w.values(), 1e-5f)), 2 * tolerance<T>());
    EXPECT_TRUE(y.gaps_untouched());
  }
}

TYPED_TEST(Heads, ItsBackwardIsTheFiniteDifferenceAndSumsTheWeightsGradientOverHeads) {
  using T = TypeParam;
  for (const Case& c : cases()) {
    const std::int64_t heads = 3;
    if (c.rows * c.columns > 100) continue;
    for (const Write write : {Write::overwrite, Write::accumulate}) {
      Rank rank(c.threads);
      const auto x = Matrix<T>::random(1, c.rows, heads * c.columns, c.gap), w = Matrix<T>::random(2, 1, c.columns);
      auto dy = Matrix<T>::random(3, c.rows, heads * c.columns, c.gap);
      Matrix<T> y(c.rows, heads * c.columns);
      auto rstd = Matrix<float>(1, heads * c.rows), dw = Matrix<float>::random(5, 1, c.columns);
      const Values seed = dy.values();
      Values dw_before = dw.values();
      if (write == Write::overwrite) dw = Matrix<float>(1, c.columns), dw_before.assign(dw_before.size(), 0);
      enqueue(
          rank.stream,
          RmsNorm<T>{.x = x.view(), .weight = w.vector_input(), .eps = 1e-5f, .y = y.view(), .rstd = rstd.vector()});
      enqueue(rank.stream, RmsNormBackward<T>{.x = x.view(),
                                              .weight = w.vector_input(),
                                              .rstd = rstd.vector(),
                                              .dy = dy.input(),
                                              .dx = dy.view(),
                                              .dw = dw.vector(),
                                              .dw_write = write});
      const Values dx_expected = finite_differences(
          [&](const Values& at) { return dot(norm_reference(at, w.values(), 1e-5f), seed); }, x.values());
      const Values dw_expected = finite_differences(
          [&](const Values& at) { return dot(norm_reference(x.values(), at, 1e-5f), seed); }, w.values());
      EXPECT_LT(difference(dy.values(), dx_expected), c.columns == 1 ? 1e9 : 2 * tolerance<T>());
      EXPECT_LT(difference(dw.values(), plus(dw_expected, dw_before)), 4e-6);
      EXPECT_TRUE(dy.gaps_untouched());
    }
  }
}

TEST(Heads, AWeightThatDividesNoRowIsRefused) {
  Rank rank(1);
  Matrix<float> x(2, 10), w(1, 4), rstd(1, 4);
  EXPECT_THROW(
      enqueue(rank.stream,
              RmsNorm<float>{.x = x.input(), .weight = w.vector_input(), .y = x.view(), .rstd = rstd.vector()}),
      LogicError);
}

TYPED_TEST(Heads, ABiasIsAddedToEveryRowAndItsGradientIsTheSumOfRows) {
  using T = TypeParam;
  for (const Case& c : cases())
    for (const Write write : {Write::overwrite, Write::accumulate}) {
      Rank rank(c.threads);
      const auto bias = Matrix<T>::random(1, 1, c.columns);
      auto y = Matrix<T>::random(2, c.rows, c.columns, c.gap);
      auto dbias = Matrix<float>::random(3, 1, c.columns);
      const Values before = y.values(), b = bias.values();
      Values sum = dbias.values(), expected;
      if (write == Write::overwrite) dbias = Matrix<float>(1, c.columns), sum.assign(sum.size(), 0);
      for (std::size_t i = 0; i < before.size(); ++i) expected.push_back(before[i] + b[i % b.size()]);
      for (std::size_t i = 0; i < before.size(); ++i) sum[i % b.size()] += before[i];
      enqueue(rank.stream, BiasBackward<T>{.dy = y.input(), .dbias = dbias.vector(), .write = write});
      EXPECT_LT(difference(dbias.values(), sum), 4e-6);
      enqueue(rank.stream, AddBias<T>{.bias = bias.vector_input(), .y = y.view()});
      EXPECT_LT(difference(y.values(), expected), tolerance<T>());
      EXPECT_TRUE(y.gaps_untouched());
      EXPECT_EQ(rank.arena.used(), 0);
    }
}

/// The table of positions [0, 64) of heads of 16, as float64: cos, then sin.
Values table_of(double theta, const RotaryScaling& scaling) {
  Rank rank(1);
  Matrix<float> table(64, 16);
  enqueue(rank.stream, RotaryTable{.theta = static_cast<float>(theta), .scaling = scaling, .table = table.view()});
  return table.values();
}

/// The same from frequencies.
Values table_of(const std::vector<double>& frequencies, double magnitude) {
  Values values;
  for (int position = 0; position < 64; ++position) {
    for (const double f : frequencies) values.push_back(magnitude * std::cos(position * f));
    for (const double f : frequencies) values.push_back(magnitude * std::sin(position * f));
  }
  return values;
}

TEST(RotaryTable, ScalesFrequenciesAsThePapersDo) {
  using Kind = RotaryScaling::Kind;
  constexpr double two_pi = 6.283185307179586;
  std::vector<double> plain, linear, llama3, yarn;
  for (int i = 0; i < 8; ++i) {
    const double f = std::pow(100.0, -i / 8.0), wavelength = two_pi / f;
    plain.push_back(f);
    linear.push_back(f / 4);
    // Of 32 positions: up to 8 a turn is fast (factor 4), from 32 on slow (factor 1).
    const double smooth = (32 / wavelength - 1) / (4.0 - 1);
    llama3.push_back(wavelength < 8 ? f : wavelength > 32 ? f / 8 : (1 - smooth) * f / 8 + smooth * f);
    const double ramp = std::clamp((i - 2) / (6.0 - 2), 0.0, 1.0);
    yarn.push_back(f / 4 * ramp + f * (1 - ramp));
  }
  EXPECT_LT(difference(table_of(100, {}), table_of(plain, 1)), 1e-6);
  EXPECT_LT(difference(table_of(100, {.kind = Kind::linear, .factor = 4}), table_of(linear, 1)), 1e-6);
  EXPECT_LT(difference(table_of(100, {.kind = Kind::llama3, .factor = 8, .low = 1, .high = 4, .original = 32}),
                       table_of(llama3, 1)),
            1e-6);
  EXPECT_LT(difference(table_of(100, {.kind = Kind::yarn, .factor = 4, .low = 2, .high = 6, .magnitude = 1.25}),
                       table_of(yarn, 1.25)),
            1e-6);
}

}  // namespace
}  // namespace fsdp::device
