// SPDX-License-Identifier: Apache-2.0
/// Embedding and loss on the CPU, in float and bf16.
#include "vocabulary.hpp"

namespace fsdp::device {
namespace {

using namespace reference;

template <class T>
class Vocabulary : public ::testing::Test {};
using Types = ::testing::Types<float, bf16>;
TYPED_TEST_SUITE(Vocabulary, Types);

TYPED_TEST(Vocabulary, EmbeddingGathersRowsAndBackwardAddsInTokenOrder) {
  for (const Case& c : Rank::variants())
    for (const std::int64_t columns : {1, 3, 15, 257, 4099})
      expect_embedding<TypeParam, Rank>(c, {.rows = 5, .columns = columns, .gap = 3}, {4, 0, 4, 2, 4, 1, 0});
}

TEST(Embedding, RoundsTheRowsOfATableInFloat) {
  for (const Case& c : Rank::variants())
    expect_embedding<bf16, Rank, float>(c, {.rows = 5, .columns = 4099, .table_gap = 3}, {4, 0, 4, 2, 4, 1, 0});
  const Embedding<bf16, float> op{.table = {nullptr, {5, 8}}, .tokens = {nullptr, {3}}, .out = {nullptr, {3, 8}}};
  EXPECT_EQ(op.cost().bytes, 3 * 4 + 3 * 8 * (2 + 4));
}

TEST(Embedding, RefusesATokenOutsideTheVocabularyBeforeWriting) {
  Rank rank(1);
  const std::vector<std::int32_t> tokens = {0, 5};
  const auto table = Matrix<float>::random(1, 5, 3);
  auto out = Matrix<float>::random(2, 2, 3);
  const Values before = out.values();
  const Tensor<const std::int32_t> ids(tokens.data(), {2});
  EXPECT_THROW(enqueue(rank.stream, Embedding<float>{.table = table, .tokens = ids, .out = out}), InputError);
  EXPECT_EQ(out.values(), before);
}

TYPED_TEST(Vocabulary, CrossEntropyAddsTheLossAndOverwritesLogitsByGradients) {
  expect_cross_entropy<TypeParam, Rank>();
}

TYPED_TEST(Vocabulary, CrossEntropyInBlocksOfColumnsMatchesWholeRows) {
  expect_cross_entropy_in_blocks<TypeParam, Rank>(300);
}

TYPED_TEST(Vocabulary, CrossEntropyPropagatesNanAndInfinity) {
  expect_cross_entropy_shows_what_is_not_finite<TypeParam, Rank>();
}

TEST(CrossEntropy, RefusesATargetOutsideTheVocabularyBeforeWriting) {
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
