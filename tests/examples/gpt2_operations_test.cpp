// SPDX-License-Identifier: Apache-2.0
// GPT-2's user-defined operations, compared with float64 and finite differences.
#include <examples/13_gpt2/operations.hpp>

#include <cmath>
#include <cstdint>
#include <utility>
#include <vector>

#include <gtest/gtest.h>

#include <tessera/fsdp/device/meta.hpp>
#include <tessera/fsdp/testing/operation.hpp>

#include <device/reference.hpp>

namespace gpt2 {
namespace {

using namespace fsdp::testing;
using fsdp::bf16;
using fsdp::device::enqueue;
using fsdp::device::reference::dot;
using fsdp::device::reference::finite_differences;
using fsdp::device::reference::Matrix;
using fsdp::device::reference::plus;
using fsdp::device::reference::Rank;

static_assert(fsdp::device::check_operation<LayerNorm<float>>() && fsdp::device::Has<Cpu, LayerNormBackward<bf16>>);
static_assert(fsdp::device::Has<fsdp::device::Meta, Gelu<float>> &&
              !fsdp::device::Has<fsdp::device::Cuda, Gelu<float>>);

using Lists = std::vector<Numbers>;
constexpr std::int64_t rows = 37, columns = 43;
constexpr double eps = 1e-5;

/// The mean of a row and 1 / sqrt(variance + eps).
std::pair<double, double> statistics(const double* row, std::size_t width) {
  double mean = 0, variance = 0;
  for (std::size_t i = 0; i < width; ++i) mean += row[i] / static_cast<double>(width);
  for (std::size_t i = 0; i < width; ++i) variance += std::pow(row[i] - mean, 2) / static_cast<double>(width);
  return {mean, 1 / std::sqrt(variance + eps)};
}

/// y, means, 1 / deviations.
Lists layer_norm(const Numbers& x, const Numbers& weight, const Numbers& bias) {
  Lists found(3);
  const std::size_t width = weight.size();
  for (std::size_t begin = 0; begin < x.size(); begin += width) {
    const auto [mean, rstd] = statistics(&x[begin], width);
    for (std::size_t i = 0; i < width; ++i) found[0].push_back((x[begin + i] - mean) * rstd * weight[i] + bias[i]);
    found[1].push_back(mean);
    found[2].push_back(rstd);
  }
  return found;
}

/// Gradients of x, weight and bias.
Lists layer_norm_gradients(const Numbers& x, const Numbers& weight, const Numbers& dy) {
  const Numbers bias(weight.size());
  return {finite_differences([&](const Numbers& each) { return dot(dy, layer_norm(each, weight, bias)[0]); }, x),
          finite_differences([&](const Numbers& each) { return dot(dy, layer_norm(x, each, bias)[0]); }, weight),
          finite_differences([&](const Numbers& each) { return dot(dy, layer_norm(x, weight, each)[0]); }, bias)};
}

double gelu(double x) { return 0.5 * x * (1 + std::tanh(std::sqrt(2 / std::acos(-1.0)) * (x + 0.044715 * x * x * x))); }

const std::vector<std::int64_t> documents = {0, 4, 6, 12};
constexpr std::int64_t positions_of[2][12] = {{0, 1, 2, 3, 4, 5, 0, 1, 2, 3, 4, 5},
                                              {0, 1, 2, 3, 0, 1, 0, 1, 2, 3, 4, 5}};
Positions some_positions(bool packed) {
  Positions positions{.sequence_length = 6};
  if (packed) positions.documents = documents;
  return positions;
}

/// Mean and reciprocal deviation of the rows of an input, as LayerNorm saves them.
template <class T>
std::pair<Tensor<const float>, Tensor<const float>> kept(OperationMemory& memory, Tensor<const T> x) {
  std::vector<float> means, rstds;
  for (std::int64_t row = 0; row < x.rows(); ++row) {
    Numbers values;
    for (std::int64_t i = 0; i < x.columns(); ++i) values.push_back(static_cast<float>(x.row(row)[i]));
    const auto [mean, rstd] = statistics(values.data(), values.size());
    means.push_back(static_cast<float>(mean));
    rstds.push_back(static_cast<float>(rstd));
  }
  return {memory.input_of(means, {x.rows()}), memory.input_of(rstds, {x.rows()})};
}

template <class T>
struct Gpt2Operations {
  static std::vector<OperationCase> cases() {
    std::vector<OperationCase> list = {layer_norm_case(), backward_case(), backward_in_place_case()};
    list.push_back(
        {.words = "numbers from -6 to 6",
         .make =
             [](OperationMemory& memory) {
               return Gelu<T>{.x = memory.input<T>({rows, columns}, 6), .y = memory.output<T>({rows, columns})};
             },
         .reference =
             [](Lists before) {
               for (double& value : before[0]) value = gelu(value);
               return Lists{before[0]};
             }});
    list.push_back(
        {.words = "slopes from -6 to 6",
         .make =
             [](OperationMemory& memory) {
               return GeluBackward<T>{.x = memory.input<T>({rows, columns}, 6), .d = memory.in_out<T>({rows, columns})};
             },
         .reference =
             [](Lists before) {
               const auto slope = [](const Numbers& x) { return gelu(x[0]); };
               for (std::size_t i = 0; i < before[1].size(); ++i)
                 before[1][i] *= finite_differences(slope, {before[0][i]})[0];
               return Lists{before[1]};
             },
         .bound = 2});
    for (const bool packed : {false, true}) {
      list.push_back(positions_case(packed));
      list.push_back(positions_gradient_case(packed));
    }
    return list;
  }

  static std::vector<OperationCase> refused() {
    return {{.words = "another shape",
             .make =
                 [](OperationMemory& memory) {
                   return Gelu<T>{.x = memory.input<T>({4, 6}), .y = memory.output<T>({1, 5})};
                 }},
            {.words = "more tokens in a sequence than positions", .make = [](OperationMemory& memory) {
               return AddPositions<T>{.positions = {.sequence_length = 5},
                                      .table = memory.input<T>({4, 6}),
                                      .y = memory.in_out<T>({4, 6})};
             }}};
  }

 private:
  static OperationCase layer_norm_case() {
    return {.words = "gaps between rows",
            .make =
                [](OperationMemory& memory) {
                  return LayerNorm<T>{.x = memory.input<T>({rows, columns}, 3, 5),
                                      .weight = memory.input<T>({columns}),
                                      .bias = memory.input<T>({columns}),
                                      .y = memory.output<T>({rows, columns}, 3),
                                      .mean = memory.output<float>({rows}),
                                      .rstd = memory.output<float>({rows})};
                },
            .reference = [](const Lists& before) { return layer_norm(before[0], before[1], before[2]); }};
  }
  /// LayerNormBackward of a saved input, without the tensors of gradients.
  static LayerNormBackward<T> backward_of(OperationMemory& memory, Tensor<const T> x) {
    const auto weight = memory.input<T>({columns});
    const auto [mean, rstd] = kept(memory, x);
    return {.x = x, .weight = weight, .mean = mean, .rstd = rstd};
  }
  static OperationCase backward_case() {
    return {.words = "dx and dbias added to",
            .make =
                [](OperationMemory& memory) {
                  LayerNormBackward<T> op = backward_of(memory, memory.input<T>({rows, columns}, 3, 5));
                  op.dy = memory.input<T>({rows, columns});
                  op.dx = memory.in_out<T>({rows, columns});
                  op.dweight = memory.output<float>({columns});
                  op.dbias = memory.in_out<float>({columns});
                  op.dx_write = op.dbias_write = Write::accumulate;
                  return op;
                },
            .reference =
                [](const Lists& before) {
                  const Lists found = layer_norm_gradients(before[0], before[1], before[4]);
                  return Lists{plus(before[5], found[0]), found[1], plus(before[7], found[2])};
                },
            .bound = 2};
  }
  static OperationCase backward_in_place_case() {
    return {.words = "dx over dy",
            .make =
                [](OperationMemory& memory) {
                  LayerNormBackward<T> op = backward_of(memory, memory.input<T>({rows, columns}, 3));
                  op.dy = op.dx = memory.in_out<T>({rows, columns});
                  op.dweight = memory.output<float>({columns});
                  op.dbias = memory.output<float>({columns});
                  return op;
                },
            .reference = [](const Lists& before) { return layer_norm_gradients(before[0], before[1], before[4]); },
            .bound = 2};
  }
  static OperationCase positions_case(bool packed) {
    return {.words = packed ? "documents of 4, 2 and 6 tokens" : "sequences of 6 tokens",
            .make =
                [=](OperationMemory& memory) {
                  return AddPositions<T>{.positions = some_positions(packed),
                                         .table = memory.input<T>({8, columns}),
                                         .y = memory.in_out<T>({12, columns})};
                },
            .reference =
                [=](Lists before) {
                  for (std::size_t i = 0; i < before[1].size(); ++i)
                    before[1][i] +=
                        before[0][static_cast<std::size_t>(positions_of[packed][i / columns]) * columns + i % columns];
                  return Lists{before[1]};
                }};
  }
  static OperationCase positions_gradient_case(bool packed) {
    return {.words = packed ? "documents of 4, 2 and 6 tokens" : "sequences of 6 tokens",
            .make =
                [=](OperationMemory& memory) {
                  return PositionsGradient<T>{.positions = some_positions(packed),
                                              .dy = memory.input<T>({12, columns}),
                                              .dtable = memory.output<float>({8, columns})};
                },
            .reference =
                [=](const Lists& before) {
                  Numbers sums(8 * columns);
                  for (std::size_t i = 0; i < before[0].size(); ++i)
                    sums[static_cast<std::size_t>(positions_of[packed][i / columns]) * columns + i % columns] +=
                        before[0][i];
                  return Lists{sums};
                },
            .bound = 0.5};
  }
};

using Types = ::testing::Types<Gpt2Operations<float>, Gpt2Operations<bf16>>;
INSTANTIATE_TYPED_TEST_SUITE_P(Gpt2, OperationSuite, Types);

template <class T>
class Gpt2LayerNorm : public ::testing::Test {};
using Elements = ::testing::Types<float, bf16>;
TYPED_TEST_SUITE(Gpt2LayerNorm, Elements);

TYPED_TEST(Gpt2LayerNorm, InPlaceBackwardIsBitIdenticalToOutOfPlace) {
  using T = TypeParam;
  Rank rank(3);
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
  enqueue(rank.stream, op(apart.view(), dweight, dbias));
  enqueue(rank.stream, op(dy.view(), dweight_over, dbias_over));
  EXPECT_EQ(dy.values(), apart.values());
  EXPECT_EQ(dweight_over.values(), dweight.values());
  EXPECT_EQ(dbias_over.values(), dbias.values());
}

}  // namespace
}  // namespace gpt2
