// SPDX-License-Identifier: Apache-2.0
// GPT-2's operations, which stand outside the library, against float64 and finite differences of it.
#include <examples/13_gpt2/operations.hpp>

#include <cmath>
#include <cstdint>
#include <type_traits>
#include <vector>

#include <gtest/gtest.h>

#include <fsdp/device/meta.hpp>

#include <device/reference.hpp>

namespace gpt2 {
namespace {

using fsdp::bf16;
using fsdp::device::enqueue;
using fsdp::device::reference::difference;
using fsdp::device::reference::dot;
using fsdp::device::reference::finite_differences;
using fsdp::device::reference::Matrix;
using fsdp::device::reference::plus;
using fsdp::device::reference::Rank;
using fsdp::device::reference::tolerance;
using fsdp::device::reference::Values;

static_assert(fsdp::device::check_operation<LayerNorm<float>>() && fsdp::device::Has<Cpu, LayerNormBackward<bf16>>);
static_assert(fsdp::device::Has<fsdp::device::Meta, Gelu<float>> &&
              !fsdp::device::Has<fsdp::device::Cuda, Gelu<float>>);

constexpr std::int64_t rows = 37, columns = 43;
constexpr double eps = 1e-5;

Values layer_norm(const Values& x, const Values& weight, const Values& bias) {
  Values y;
  const std::size_t width = weight.size();
  for (std::size_t begin = 0; begin < x.size(); begin += width) {
    double mean = 0, variance = 0;
    for (std::size_t i = 0; i < width; ++i) mean += x[begin + i] / static_cast<double>(width);
    for (std::size_t i = 0; i < width; ++i) variance += std::pow(x[begin + i] - mean, 2) / static_cast<double>(width);
    for (std::size_t i = 0; i < width; ++i)
      y.push_back((x[begin + i] - mean) / std::sqrt(variance + eps) * weight[i] + bias[i]);
  }
  return y;
}

Values gelu(const Values& x) {
  Values y;
  for (const double value : x)
    y.push_back(0.5 * value *
                (1 + std::tanh(std::sqrt(2 / std::acos(-1.0)) * (value + 0.044715 * std::pow(value, 3)))));
  return y;
}

template <class T>
class Gpt2Operations : public testing::Test {
 protected:
  Rank one{1}, three{3};
};
using Types = testing::Types<float, bf16>;
TYPED_TEST_SUITE(Gpt2Operations, Types);

TYPED_TEST(Gpt2Operations, LayerNormIsThatOfFloat64) {
  using T = TypeParam;
  const auto x = Matrix<T>::random(1, rows, columns, 5, 3), weight = Matrix<T>::random(2, 1, columns),
             bias = Matrix<T>::random(3, 1, columns);
  Matrix<T> y(rows, columns, 3);
  Matrix<float> mean(1, rows), rstd(1, rows);
  enqueue(this->three.stream, LayerNorm<T>{.x = x.view(),
                                           .weight = weight.vector_input(),
                                           .bias = bias.vector_input(),
                                           .y = y.view(),
                                           .mean = mean.vector(),
                                           .rstd = rstd.vector()});
  EXPECT_LT(difference(y.values(), layer_norm(x.values(), weight.values(), bias.values())), tolerance<T>());
  EXPECT_TRUE(y.gaps_untouched());
}

TYPED_TEST(Gpt2Operations, LayerNormBackwardIsDerivedAndDoesNotDependOnThreads) {
  using T = TypeParam;
  const auto x = Matrix<T>::random(1, rows, columns, 5, 3), weight = Matrix<T>::random(2, 1, columns),
             bias = Matrix<T>::random(3, 1, columns), dy = Matrix<T>::random(4, rows, columns);
  Matrix<T> y(rows, columns);
  Matrix<float> mean(1, rows), rstd(1, rows);
  enqueue(this->one.stream, LayerNorm<T>{.x = x.view(),
                                         .weight = weight.vector_input(),
                                         .bias = bias.vector_input(),
                                         .y = y.view(),
                                         .mean = mean.vector(),
                                         .rstd = rstd.vector()});
  const auto before = Matrix<T>::random(5, rows, columns);
  const auto before_bias = Matrix<float>::random(6, 1, columns);
  struct Found {
    Values dx, dweight, dbias;
    bool operator==(const Found&) const = default;
  };
  const auto backward = [&](Rank& rank) {
    auto dx = before;
    auto dbias = before_bias;
    Matrix<float> dweight(1, columns);
    enqueue(rank.stream, LayerNormBackward<T>{.x = x.view(),
                                              .weight = weight.vector_input(),
                                              .mean = mean.vector(),
                                              .rstd = rstd.vector(),
                                              .dy = dy.view(),
                                              .dx = dx.view(),
                                              .dx_write = Write::accumulate,
                                              .dweight = dweight.vector(),
                                              .dbias = dbias.vector(),
                                              .dbias_write = Write::accumulate});
    return Found{dx.values(), dweight.values(), dbias.values()};
  };
  const Found found = backward(this->one);
  EXPECT_TRUE(found == backward(this->three));
  const Values xs = x.values(), ws = weight.values(), bs = bias.values(), ds = dy.values();
  const auto dx = finite_differences([&](const Values& each) { return dot(ds, layer_norm(each, ws, bs)); }, xs);
  const auto dw = finite_differences([&](const Values& each) { return dot(ds, layer_norm(xs, each, bs)); }, ws);
  const auto db = finite_differences([&](const Values& each) { return dot(ds, layer_norm(xs, ws, each)); }, bs);
  EXPECT_LT(difference(found.dx, plus(before.values(), dx)), 2 * tolerance<T>());
  EXPECT_LT(difference(found.dweight, dw), 4e-6);
  EXPECT_LT(difference(found.dbias, plus(before_bias.values(), db)), 4e-6);
}

TYPED_TEST(Gpt2Operations, LayerNormBackwardMayWriteOverWhatItReads) {
  using T = TypeParam;
  const auto x = Matrix<T>::random(1, rows, columns), weight = Matrix<T>::random(2, 1, columns);
  const auto mean = Matrix<float>::random(3, 1, rows), rstd = Matrix<float>::random(4, 1, rows);
  auto dy = Matrix<T>::random(5, rows, columns);
  Matrix<T> apart(rows, columns);
  Matrix<float> dweight(1, columns), dbias(1, columns), dweight_over(1, columns), dbias_over(1, columns);
  const auto op = [&](Tensor<T> dx, Matrix<float>& dw, Matrix<float>& db) {
    return LayerNormBackward<T>{.x = x.view(),
                                .weight = weight.vector_input(),
                                .mean = mean.vector_input(),
                                .rstd = rstd.vector_input(),
                                .dy = dy.input(),
                                .dx = dx,
                                .dweight = dw.vector(),
                                .dbias = db.vector()};
  };
  enqueue(this->three.stream, op(apart.view(), dweight, dbias));
  enqueue(this->three.stream, op(dy.view(), dweight_over, dbias_over));
  EXPECT_EQ(dy.values(), apart.values());
  EXPECT_EQ(dweight_over.values(), dweight.values());
  EXPECT_EQ(dbias_over.values(), dbias.values());
}

TYPED_TEST(Gpt2Operations, BiasIsAddedToRowsAndItsGradientIsTheirSum) {
  using T = TypeParam;
  const auto bias = Matrix<T>::random(1, 1, columns), start = Matrix<T>::random(2, rows, columns, 4);
  auto y = start;
  enqueue(this->three.stream, AddBias<T>{.bias = bias.vector_input(), .y = y.view()});
  Values expected = start.values(), sums(columns);
  for (std::size_t i = 0; i < expected.size(); ++i) {
    sums[i % columns] += expected[i];
    expected[i] += bias.values()[i % columns];
  }
  EXPECT_LT(difference(y.values(), expected), tolerance<T>());
  EXPECT_TRUE(y.gaps_untouched());

  Matrix<float> dbias(1, columns);
  enqueue(this->three.stream, BiasGradient<T>{.dy = start.view(), .dbias = dbias.vector()});
  EXPECT_LT(difference(dbias.values(), sums), 1e-6);
  enqueue(this->one.stream, BiasGradient<T>{.dy = start.view(), .dbias = dbias.vector(), .write = Write::accumulate});
  EXPECT_LT(difference(dbias.values(), plus(sums, sums)), 1e-6);
}

TYPED_TEST(Gpt2Operations, GeluAndItsSlopeAreThoseOfFloat64) {
  using T = TypeParam;
  const auto x = Matrix<T>::random(1, rows, columns, 0, 6), start = Matrix<T>::random(2, rows, columns);
  Matrix<T> y(rows, columns);
  auto d = start;
  enqueue(this->three.stream, Gelu<T>{.x = x.view(), .y = y.view()});
  enqueue(this->three.stream, GeluBackward<T>{.x = x.view(), .d = d.view()});
  EXPECT_LT(difference(y.values(), gelu(x.values())), tolerance<T>());
  Values slopes;
  for (std::size_t i = 0; i < x.values().size(); ++i) {
    const Values at = {x.values()[i]};
    slopes.push_back(start.values()[i] * finite_differences([](const Values& each) { return gelu(each)[0]; }, at)[0]);
  }
  EXPECT_LT(difference(d.values(), slopes), 2 * tolerance<T>());
}

TYPED_TEST(Gpt2Operations, PositionsBeginAnewWithEveryDocument) {
  using T = TypeParam;
  constexpr std::int64_t length = 6;
  const std::vector<std::int64_t> documents = {0, 4, 6, 12};
  const std::int64_t expected[2][12] = {{0, 1, 2, 3, 4, 5, 0, 1, 2, 3, 4, 5}, {0, 1, 2, 3, 0, 1, 0, 1, 2, 3, 4, 5}};
  const auto table = Matrix<T>::random(1, 8, columns), start = Matrix<T>::random(2, 12, columns);
  for (const bool packed : {false, true}) {
    Positions positions{.sequence_length = length};
    if (packed) positions.documents = documents;
    auto y = start;
    Matrix<float> dtable(8, columns);
    enqueue(this->three.stream, AddPositions<T>{.positions = positions, .table = table.view(), .y = y.view()});
    enqueue(this->three.stream,
            PositionsGradient<T>{.positions = positions, .dy = start.view(), .dtable = dtable.view()});
    Values sums = start.values(), gradient(8 * columns);
    for (std::size_t i = 0; i < sums.size(); ++i) {
      const auto at = static_cast<std::size_t>(expected[packed][i / columns]) * columns + i % columns;
      gradient[at] += sums[i];
      sums[i] += table.values()[at];
    }
    EXPECT_LT(difference(y.values(), sums), tolerance<T>());
    EXPECT_LT(difference(dtable.values(), gradient), 1e-6);
  }
}

TEST(Gpt2Operation, RefusesShapesThatDoNotFit) {
  Rank rank(1);
  Matrix<float> matrix(4, 6), vector(1, 5);
  EXPECT_THROW(enqueue(rank.stream, AddBias<float>{.bias = vector.vector(), .y = matrix.view()}), fsdp::LogicError);
  EXPECT_THROW(enqueue(rank.stream, Gelu<float>{.x = matrix.view(), .y = vector.view()}), fsdp::LogicError);
  EXPECT_THROW(
      enqueue(rank.stream,
              AddPositions<float>{.positions = {.sequence_length = 5}, .table = matrix.view(), .y = matrix.view()}),
      fsdp::LogicError);
}

}  // namespace
}  // namespace gpt2
