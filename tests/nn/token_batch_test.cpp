// SPDX-License-Identifier: Apache-2.0
#include <tessera/fsdp/nn/token_batch.hpp>

#include <algorithm>
#include <cstdint>
#include <functional>
#include <numeric>
#include <utility>
#include <vector>

#include <gtest/gtest.h>

#include <tessera/fsdp/core/error.hpp>

namespace fsdp {
namespace {

using Lengths = std::vector<std::int64_t>;

/// Tokens 0, 1, 2, ...; every third target is ignored.
struct Numbered {
  explicit Numbered(std::int64_t rows) : tokens(static_cast<std::size_t>(rows)), targets(tokens) {
    std::iota(tokens.begin(), tokens.end(), 0);
    std::ranges::transform(tokens, targets.begin(), [](std::int32_t row) { return row % 3 == 0 ? -1 : row; });
  }
  TokenBatch batch(std::int64_t sequences, const Lengths& documents = {}) const {
    const auto rows = static_cast<std::int64_t>(tokens.size());
    return {.tokens = {tokens.data(), {rows}},
            .targets = {targets.data(), {rows}},
            .sequences = sequences,
            .documents = documents,
            .noise = {.key = 7, .first_row = 100}};
  }

  std::vector<std::int32_t> tokens, targets;
};

/// The sum of squared lengths of documents, or of sequences if there are no documents.
std::int64_t squares_of(std::int64_t rows, std::int64_t sequences, const Lengths& documents) {
  if (documents.empty()) return rows * (rows / sequences);
  return std::inner_product(documents.begin() + 1, documents.end(), documents.begin(), std::int64_t{0}, std::plus(),
                            [](std::int64_t end, std::int64_t begin) { return (end - begin) * (end - begin); });
}

TEST(RowsOfPart, CoverAllRowsInOrderInPartsOfNearlyEqualSize) {
  for (const std::int64_t rows : {1, 4, 7, 24, 1000003})
    for (const int parts : {1, 2, 3, 4, 7}) {
      std::int64_t end = 0;
      for (int part = 0; part < parts; ++part) {
        const nn::RowRange own = nn::rows_of_part(rows, part, parts);
        EXPECT_EQ(own.begin, end);
        EXPECT_GE(own.end - own.begin, rows / parts);
        EXPECT_LE(own.end - own.begin, rows / parts + 1);
        end = own.end;
      }
      EXPECT_EQ(end, rows);
    }
  EXPECT_EQ(nn::rows_of_part(7, 1, 3), (nn::RowRange{.begin = 2, .end = 4}));
}

TEST(TokenBatchPart, HasItsOwnRowsAndAllSequencesAndDocuments) {
  const Numbered numbers(10);
  const Lengths documents = {0, 3, 5, 10};
  const TokenBatch part = numbers.batch(2, documents).part(1, 3);
  ASSERT_EQ(part.tokens.numel(), 3);
  ASSERT_EQ(part.targets.numel(), 3);
  using List = std::vector<std::int32_t>;
  EXPECT_EQ(List(part.tokens.data(), part.tokens.data() + 3), (List{3, 4, 5}));
  EXPECT_EQ(List(part.targets.data(), part.targets.data() + 3), (List{-1, 4, 5}));
  EXPECT_EQ(part.noise.key, 7u);
  EXPECT_EQ(part.noise.first_row, 103);
  EXPECT_EQ(part.first_row, 3);
  EXPECT_EQ(part.all_rows, 10);
  EXPECT_EQ(part.sequences, 2);
  EXPECT_EQ(part.documents.data(), documents.data());
  EXPECT_EQ(part.documents.size(), documents.size());
  EXPECT_THROW((void)part.part(0, 2), LogicError) << "its rows would be numbered from 0";
}

TEST(TokenBatchPart, HasNoTargetsIfTheBatchHasNone) {
  const Numbered numbers(6);
  TokenBatch batch = numbers.batch(1);
  batch.targets = {};
  const TokenBatch part = batch.part(1, 2);
  EXPECT_EQ(part.tokens.numel(), 3);
  EXPECT_EQ(part.targets.numel(), 0);
  EXPECT_EQ(part.counts(), (BatchCounts{.valid_targets = 0, .squares = 18}));
}

TEST(TokenBatchPart, CountsOfAllPartsSumToThoseOfTheBatch) {
  constexpr std::int64_t rows = 24;
  const Numbered numbers(rows);
  const std::vector<std::pair<std::int64_t, Lengths>> cases = {
      {1, {}}, {4, {}}, {1, {0, 24}}, {1, {0, 1, 20, 24}}, {2, {0, 5, 5, 12, 13, 24}}, {3, {0, 8, 16, 24}}};
  for (const auto& [sequences, documents] : cases) {
    const TokenBatch batch = numbers.batch(sequences, documents);
    const BatchCounts whole = batch.counts();
    EXPECT_EQ(whole.squares, squares_of(rows, sequences, documents));
    EXPECT_EQ(whole.valid_targets, 16);
    for (const int parts : {1, 2, 3, 4, 5, 24}) {
      BatchCounts sum;
      for (int part = 0; part < parts; ++part) {
        sum += batch.part(part, parts).counts();
        EXPECT_EQ(nn::counts_of_part(batch, part, parts), batch.part(part, parts).counts());
      }
      EXPECT_EQ(sum, whole) << sequences << " sequences, " << documents.size() << " documents, " << parts << " parts";
    }
  }
}

TEST(TokenBatchPart, CountsTheDocumentLengthOfEachRow) {
  const Numbered numbers(10);
  const Lengths documents = {0, 3, 10};
  const TokenBatch batch = numbers.batch(1, documents);
  EXPECT_EQ(batch.part(0, 2).counts().squares, 3 * 3 + 2 * 7);
  EXPECT_EQ(batch.part(1, 2).counts().squares, 5 * 7);
  EXPECT_EQ(numbers.batch(2).part(0, 5).counts().squares, 2 * 5);
}

/// A batch that cannot be split into parts of rows.
struct WithoutParts {
  BatchCounts counts() const { return {.valid_targets = 3, .squares = 9}; }
};

TEST(CountsOfPart, OfABatchThatCannotBeSplitAreThoseOfTheBatch) {
  EXPECT_EQ(nn::counts_of_part(WithoutParts(), 0, 1), WithoutParts().counts());
  EXPECT_THROW((void)nn::counts_of_part(WithoutParts(), 0, 2), LogicError);
}

}  // namespace
}  // namespace fsdp
