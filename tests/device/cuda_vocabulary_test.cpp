// SPDX-License-Identifier: Apache-2.0
/// The two ends of a model on Cuda against float64.
#include <limits>

#include "cuda_reference.hpp"

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

/// As in generation: one row goes out, and which of the table's it is only the device knows.
TEST(CudaVocabulary, OneTokenIsReadFromAnyRowOfATableAndAddedToAny) {
  FSDP_NEEDS_DEVICE();
  for_types_and_variants([](auto type, bool plain) {
    using T = decltype(type);
    for (const std::int64_t columns : {9, 13, 20, 33, 36, 64})
      for (const std::int64_t gap : {0, 1, 8})
        for (const std::int32_t token : {0, 1, 4}) {
          CudaRank rank(plain);
          const NumbersOnDevice<std::int32_t> ids(rank, {token});
          const auto table = Matrix<T>::random(1, 5, columns, gap), dy = Matrix<T>::random(2, 1, columns);
          Matrix<T> out(1, columns);
          Matrix<float> gradient(5, columns, gap);
          const OnDevice<T> device_table(rank, table), device_out(rank, out), device_dy(rank, dy);
          const OnDevice<float> sums(rank, gradient);
          enqueue(rank.stream,
                  Embedding<T>{.table = device_table.input(), .tokens = ids.view(), .out = device_out.view()});
          enqueue(rank.stream,
                  EmbeddingBackward<T>{
                      .tokens = ids.view(), .dy = device_dy.input(), .dtable = sums.view(), .write = Write::overwrite});
          device_out.back();
          sums.back();
          for (std::int64_t i = 0; i < columns; ++i) {
            ASSERT_EQ(static_cast<float>(out.at(0, i)), static_cast<float>(table.view().row(token)[i]));
            for (std::int64_t row = 0; row < 5; ++row)
              ASSERT_EQ(gradient.at(row, i), row == token ? static_cast<float>(dy.view().row(0)[i]) : 0.0f);
          }
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

}  // namespace
}  // namespace fsdp::device
