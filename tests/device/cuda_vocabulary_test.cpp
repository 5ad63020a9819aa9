// SPDX-License-Identifier: Apache-2.0
/// Embedding and loss on Cuda, compared with float64.
#include <algorithm>
#include <cmath>
#include <cstdint>
#include <vector>

#include "cuda_reference.hpp"
#include "vocabulary.hpp"

namespace fsdp::device {
namespace {

using namespace reference;

TEST(CudaVocabulary, EmbeddingGathersRowsAndBackwardAddsInTokenOrder) {
  FSDP_NEEDS_DEVICE();
  std::vector<std::int32_t> tokens = {4, 0, 4, 2, 4, 1, 0};
  for (std::int32_t t = 0; t < 300; ++t) tokens.push_back(t * t % 5 == 3 ? 0 : t * t % 5);  // token 3 does not occur
  for_types([&]<class T>(T) {
    for (const Case& c : CudaRank::variants())
      for (const std::int64_t columns : {1, 15, 64, 2056})
        expect_embedding<T, CudaRank>(c, {.rows = 5, .columns = columns, .gap = 8}, tokens);
  });
  for (const Case& c : CudaRank::variants())
    for (const std::int64_t table_gap : {0, 1, 8}) {
      expect_embedding<bf16, CudaRank, float>(c, {.rows = 5, .columns = 72, .table_gap = table_gap}, {4, 0, 4});
      expect_embedding<f16, CudaRank, float>(c, {.rows = 5, .columns = 72, .table_gap = table_gap}, {4, 0, 4});
    }
}

/// The case of decoding: one row of the table is read, whose index only the device knows.
TEST(CudaVocabulary, OneTokenReadsAndUpdatesAnyRowOfTheTable) {
  FSDP_NEEDS_DEVICE();
  for_types([]<class T>(T) {
    for (const Case& c : CudaRank::variants())
      for (const std::int64_t columns : {9, 13, 20, 33, 36, 64})
        for (const std::int64_t gap : {0, 1, 8})
          for (const std::int32_t token : {0, 1, 4})
            expect_embedding<T, CudaRank>(c, {.rows = 5, .columns = columns, .table_gap = gap}, {token});
  });
}

/// Each block owns several rows that are far apart.
TEST(CudaVocabulary, EveryRowOfALargeTableReceivesItsGradient) {
  FSDP_NEEDS_DEVICE();
  expect_embedding<bf16, CudaRank>({}, {.rows = 1600, .columns = 8},
                                   {0, 1024, 1, 1599, 0, 1023, 575, 1024, 1025, 575, 576});
}

TEST(CudaVocabulary, TokensOutsideTheVocabularyGiveNanAndNoGradient) {
  FSDP_NEEDS_DEVICE();
  for (const bool plain : {false, true}) {
    CudaRank rank(plain);
    const NumbersOnDevice<std::int32_t> ids(rank, {1, 5, -1});
    const OnDevice<float> table(rank, Matrix<float>::random(1, 5, 8)), dy(rank, Matrix<float>::random(2, 3, 8));
    const OnDevice<float> device_out(rank, {3, 8}), sums(rank, {5, 8});
    enqueue(rank.stream, Embedding<float>{.table = table, .tokens = ids, .out = device_out});
    auto& out = device_out.back();
    EXPECT_TRUE(out.at(0, 7) == table.back().at(1, 7) && std::isnan(out.at(1, 0)) && std::isnan(out.at(2, 7)));
    enqueue(rank.stream, EmbeddingBackward<float>{.tokens = ids, .dy = dy, .dtable = sums, .write = Write::overwrite});
    Values expected(5 * 8);
    std::ranges::copy_n(dy.values().begin(), 8, expected.begin() + 8);
    EXPECT_EQ(sums.values(), expected);
  }
}

TEST(CudaVocabulary, CrossEntropyAddsTheLossAndOverwritesLogitsByGradients) {
  FSDP_NEEDS_DEVICE();
  for_types([]<class T>(T) { expect_cross_entropy<T, CudaRank>(); });
}

TEST(CudaVocabulary, CrossEntropyInBlocksOfColumnsMatchesWholeRows) {
  FSDP_NEEDS_DEVICE();
  for_types([]<class T>(T) { expect_cross_entropy_in_blocks<T, CudaRank>(20); });
}

TEST(CudaVocabulary, CrossEntropyPropagatesNonFiniteLogitsAndBadTargets) {
  FSDP_NEEDS_DEVICE();
  for_types([]<class T>(T) { expect_cross_entropy_shows_what_is_not_finite<T, CudaRank>(); });
  CudaRank rank;
  const OnDevice<bf16> logits(rank, Matrix<bf16>::random(1, 1, 40));
  const NumbersOnDevice<std::int32_t> beyond(rank, {40});
  const NumbersOnDevice<double> loss(rank, {0});
  enqueue(rank.stream, CrossEntropyLoss<bf16>{.logits = logits, .targets = beyond, .loss = loss});
  EXPECT_TRUE(std::isnan(loss.back()[0]));
}

}  // namespace
}  // namespace fsdp::device
