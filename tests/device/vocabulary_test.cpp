// SPDX-License-Identifier: Apache-2.0
/// The two ends of a model, embedding and loss, in float and bf16.
#include "reference.hpp"

namespace fsdp::device {
namespace {

using namespace reference;

template <class T>
class Vocabulary : public ::testing::Test {};
using Types = ::testing::Types<float, bf16>;
TYPED_TEST_SUITE(Vocabulary, Types);

TYPED_TEST(Vocabulary, EmbeddingTakesRowsAndItsBackwardAddsThemInTokenOrder) {
  using T = TypeParam;
  const std::vector<std::int32_t> tokens = {4, 0, 4, 2, 4, 1, 0};
  const Tensor<const std::int32_t> ids(tokens.data(), {7});
  for (const std::int64_t columns : {1, 3, 15, 257, 4099})
    for (const int threads : team_sizes()) {
      Rank rank(threads);
      const auto table = Matrix<T>::random(1, 5, columns);
      Matrix<T> out(7, columns, 2);
      enqueue(rank.stream, Embedding<T>{.table = table.view(), .tokens = ids, .out = out.view()});
      for (std::int64_t t = 0; t < 7; ++t)
        for (const std::int64_t i : {std::int64_t{0}, columns / 2, columns - 1})
          EXPECT_EQ(out.at(t, i), table.view().row(tokens[static_cast<std::size_t>(t)])[i]);

      const auto dy = Matrix<T>::random(2, 7, columns, 3);
      Matrix<float> gradient(5, columns), expected(5, columns);
      expected.set([](std::int64_t) { return 0; });
      for (const int times : {1, 2}) {
        for (std::int64_t t = 0; t < 7; ++t)
          for (std::int64_t i = 0; i < columns; ++i)
            expected.at(tokens[static_cast<std::size_t>(t)], i) += static_cast<float>(dy.view().row(t)[i]);
        enqueue(rank.stream, EmbeddingBackward<T>{.tokens = ids,
                                                  .dy = dy.view(),
                                                  .dtable = gradient.view(),
                                                  .write = times == 1 ? Write::overwrite : Write::accumulate});
        EXPECT_EQ(gradient.values(), expected.values());
      }
      EXPECT_TRUE(out.gaps_untouched());
    }
}

TEST(Embedding, RefusesATokenOutsideTheVocabularyBeforeItWrites) {
  Rank rank(1);
  const std::vector<std::int32_t> tokens = {0, 5};
  const auto table = Matrix<float>::random(1, 5, 3);
  auto out = Matrix<float>::random(2, 2, 3);
  const Values before = out.values();
  const Tensor<const std::int32_t> ids(tokens.data(), {2});
  EXPECT_THROW(enqueue(rank.stream, Embedding<float>{.table = table.view(), .tokens = ids, .out = out.view()}),
               InputError);
  EXPECT_EQ(out.values(), before);
}

double loss_reference(const Values& row, std::int32_t target) {
  const double most = *std::max_element(row.begin(), row.end());
  double sum = 0;
  for (const double value : row) sum += std::exp(value - most);
  return std::log(sum) + most - row[static_cast<std::size_t>(target)];
}

TYPED_TEST(Vocabulary, CrossEntropyAddsTheLossAndLeavesItsGradient) {
  using T = TypeParam;
  for (const Case& c : cases()) {
    Rank rank(c.threads);
    auto logits = Matrix<T>::random(1, c.rows, c.columns, c.gap, 9);
    std::vector<std::int32_t> targets;
    for (std::int64_t t = 0; t < c.rows; ++t)
      targets.push_back(static_cast<std::int32_t>((t * 7 + c.columns / 2) % c.columns));
    const Tensor<const std::int32_t> ids(targets.data(), {c.rows});
    const Values before = logits.values();
    Values expected;
    double total = 10;
    for (std::int64_t t = 0; t < c.rows; ++t) {
      const auto first = before.begin() + t * c.columns;
      Values row(first, first + c.columns);
      const std::int32_t target = targets[static_cast<std::size_t>(t)];
      const double lse = loss_reference(row, target) + row[static_cast<std::size_t>(target)];
      total += loss_reference(row, target);
      for (std::int64_t i = 0; i < c.columns; ++i)
        expected.push_back(0.5 * (std::exp(row[static_cast<std::size_t>(i)] - lse) - (i == target)));
    }
    double loss = 10, loss_only = 10;
    enqueue(rank.stream, CrossEntropyLoss<T>{.logits = logits.input(), .targets = ids, .loss = {&loss_only, {1}}});
    EXPECT_EQ(logits.values(), before);
    enqueue(rank.stream, CrossEntropy<T>{.logits = logits.view(), .targets = ids, .scale = 0.5f, .loss = {&loss, {1}}});
    EXPECT_EQ(loss, loss_only);
    EXPECT_NEAR(loss / total, 1, 1e-7);
    if (c.columns > 1) {
      EXPECT_LT(difference(logits.values(), expected), tolerance<T>());
    } else {
      EXPECT_EQ(difference(logits.values(), expected), 0);
    }
    EXPECT_TRUE(logits.gaps_untouched());
  }
}

TYPED_TEST(Vocabulary, CrossEntropyInBlocksOfColumnsIsThatOfWholeRows) {
  using T = TypeParam;
  for (const Case& c : cases())
    for (const std::int64_t block : {std::int64_t{1}, std::int64_t{5}, c.columns / 2 + 1, c.columns}) {
      if (c.columns / block > 300) continue;
      Rank rank(c.threads);
      auto whole = Matrix<T>::random(1, c.rows, c.columns, c.gap, 9), blocks = whole;
      std::vector<std::int32_t> targets;
      for (std::int64_t t = 0; t < c.rows; ++t)
        targets.push_back(static_cast<std::int32_t>((t * 7 + c.columns / 2) % c.columns));
      const Tensor<const std::int32_t> ids(targets.data(), {c.rows});
      double loss = 10, found = 10;
      enqueue(rank.stream,
              CrossEntropy<T>{.logits = whole.view(), .targets = ids, .scale = 0.5f, .loss = {&loss, {1}}});
      std::vector<double> memory(static_cast<std::size_t>(3 * c.rows), NAN);
      const Tensor<double> state(memory.data(), {c.rows, 3});
      const auto for_blocks = [&](const auto& f) {
        for (std::int64_t begin = 0; begin < c.columns; begin += block)
          f(blocks.view().slice_columns(begin, std::min(begin + block, c.columns)), begin);
      };
      for_blocks([&](Tensor<T> part, std::int64_t begin) {
        enqueue(rank.stream, CrossEntropyFold<T>{.logits = part, .first = begin, .targets = ids, .state = state});
      });
      enqueue(rank.stream, CrossEntropySum{.state = state, .loss = {&found, {1}}});
      for_blocks([&](Tensor<T> part, std::int64_t begin) {
        enqueue(rank.stream,
                CrossEntropyGradient<T>{.logits = part, .first = begin, .targets = ids, .scale = 0.5f, .state = state});
      });
      EXPECT_NEAR(found, loss, 1e-7 * loss);
      EXPECT_LT(difference(blocks.values(), whole.values()), tolerance<T>());
      EXPECT_TRUE(blocks.gaps_untouched());
    }
}

TEST(CrossEntropy, GradientIsTheFiniteDifferenceOfTheLoss) {
  Rank rank(1);
  auto logits = Matrix<float>::random(1, 1, 15, 0, 4);
  const std::int32_t target = 11;
  const Values expected = finite_differences([](const Values& at) { return loss_reference(at, 11); }, logits.values());
  double loss = 0;
  enqueue(rank.stream,
          CrossEntropy<float>{.logits = logits.view(), .targets = {&target, {1}}, .scale = 1, .loss = {&loss, {1}}});
  EXPECT_LT(difference(logits.values(), expected), 2e-6);
}

TYPED_TEST(Vocabulary, CrossEntropyShowsNanAndInfinity) {
  using T = TypeParam;
  for (const float bad : {std::numeric_limits<float>::quiet_NaN(), std::numeric_limits<float>::infinity()})
    for (const std::int64_t at : {0, 16, 39}) {
      Rank rank(1);
      auto logits = Matrix<T>::random(1, 1, 40);
      logits.at(0, at) = T(bad);
      const std::int32_t target = 3;
      double loss = 0;
      enqueue(rank.stream,
              CrossEntropyLoss<T>{.logits = logits.input(), .targets = {&target, {1}}, .loss = {&loss, {1}}});
      EXPECT_TRUE(std::isnan(loss));
    }
}

TEST(CrossEntropy, RefusesATargetOutsideTheVocabularyBeforeItWrites) {
  Rank rank(1);
  auto logits = Matrix<float>::random(1, 2, 7);
  const Values before = logits.values();
  double loss = 3;
  for (const std::int32_t bad : {7, -1}) {
    const std::vector<std::int32_t> targets = {1, bad};
    EXPECT_THROW(
        enqueue(rank.stream,
                CrossEntropy<float>{
                    .logits = logits.view(), .targets = {targets.data(), {2}}, .scale = 1, .loss = {&loss, {1}}}),
        InputError);
  }
  EXPECT_EQ(logits.values(), before);
  EXPECT_EQ(loss, 3);
}

}  // namespace
}  // namespace fsdp::device
