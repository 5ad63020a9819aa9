// SPDX-License-Identifier: Apache-2.0
#include <tessera/trainer/data/text_source.hpp>

#include <algorithm>
#include <array>
#include <string>
#include <vector>

#include <gtest/gtest.h>

#include <tessera/fsdp/device/cpu.hpp>
#include <tessera/fsdp/device/host_copy.hpp>

#include "support/temporary_folder.hpp"

namespace fsdp::data {
namespace {

static_assert(check_source<TextSource>() && !Source<Windows>);

std::vector<std::int32_t> values(Tensor<const std::int32_t> list) { return {list.data(), list.data() + list.numel()}; }

TEST(TextSource, GivesWindowsAsABatchWhoseMissingSequencesHaveNoTargets) {
  const test::TemporaryFolder folder;
  const std::array paths = {folder.write("text", "abcdefghijklm")};  // 4 windows of 3, of which 1 is held out
  const TextSource source(paths, 3, 0.25, 256, std::nullopt);
  EXPECT_EQ(source.training(), 3);
  EXPECT_EQ(source.validation(), 1);
  EXPECT_EQ(source.text(), "13 B in 1 file");

  auto storage = source.storage(3, device::host_memory<device::Cpu>);
  const std::array<std::int64_t, 2> windows = {2, 1};
  const TokenBatch batch = source.fill(storage, windows);
  EXPECT_EQ(values(batch.tokens), (std::vector<std::int32_t>{'g', 'h', 'i', 'd', 'e', 'f', 'a', 'b', 'c'}));
  EXPECT_EQ(values(batch.targets), (std::vector<std::int32_t>{'h', 'i', 'j', 'e', 'f', 'g', -1, -1, -1}));
  EXPECT_EQ(batch.sequences, 3);
  EXPECT_TRUE(batch.documents.empty());
  EXPECT_EQ(batch.counts(), (BatchCounts{.valid_targets = 6, .squares = 27}));
}

TEST(TextSource, ASeparatorEndsDocuments) {
  const test::TemporaryFolder folder;
  const std::array paths = {folder.write("text", "a.cdefg.i")};
  const TextSource source(paths, 4, 0, 256, '.');
  auto storage = source.storage(2, device::host_memory<device::Cpu>);
  const std::array<std::int64_t, 2> windows = {0, 1};
  const TokenBatch batch = source.fill(storage, windows);
  EXPECT_EQ(std::vector<std::int64_t>(batch.documents.begin(), batch.documents.end()),
            (std::vector<std::int64_t>{0, 2, 4, 8}));
  EXPECT_EQ(batch.counts().squares, 4 + 4 + 16);
  EXPECT_THROW(batch.pattern(), LogicError);
}

TEST(TextSource, OfTokensSaysSoAndTakesAnySeparatorOfTheVocabulary) {
  const test::TemporaryFolder folder;
  const std::array paths = {folder.write("u16", std::string("\1\0\2\1\3\0\4\0\5\0", 10))};
  const TextSource source(paths, 4, 0, 1000, 258, TokenFormat::u16);
  EXPECT_EQ(source.text(), "5 tokens of 16 bits in 1 file");
  EXPECT_NE(source.identity().find("1 files, 5 tokens of 16 bits, digest "), std::string::npos);
  auto storage = source.storage(1, device::host_memory<device::Cpu>);
  const TokenBatch batch = source.fill(storage, std::array<std::int64_t, 1>{0});
  EXPECT_EQ(values(batch.tokens), (std::vector<std::int32_t>{1, 258, 3, 4}));
  EXPECT_EQ(std::vector<std::int64_t>(batch.documents.begin(), batch.documents.end()),
            (std::vector<std::int64_t>{0, 2, 4}));
  EXPECT_INPUT_ERROR(TextSource(paths, 4, 0, 1000, 1000, TokenFormat::u16), "not below the model's vocabulary of 1000");
  EXPECT_INPUT_ERROR(TextSource(std::array{folder.write("text", "abcdef")}, 4, 0, 1000, 256),
                     "--document-separator 256 must be a byte: 0 to 255");
}

TEST(TextSource, NumbersOfAnotherTypeAreSeenBeforeTheFirstStep) {
  const test::TemporaryFolder folder;
  std::string big_endian;
  for (int i = 0; i < 400; ++i) big_endian += {'\0', static_cast<char>(i < 200 ? 0 : 1 + i % 100)};
  const std::array paths = {folder.write("u16", big_endian)};
  EXPECT_INPUT_ERROR(TextSource(paths, 4, 0, 1000, std::nullopt, TokenFormat::u16),
                     "u16 holds token 5376, which is not below the model's vocabulary of 1000, at byte 440");
}

TEST(TextSource, OfSeveralCorporaDrawsByTheirWeights) {
  const test::TemporaryFolder folder;
  const std::vector<WeightedFiles> files = {{.paths = {folder.write("a", std::string(401, 'a'))}, .weight = 3},
                                            {.paths = {folder.write("b", std::string(81, 'b'))}, .weight = 1}};
  const TextSource source(files, 4, 0.1, 256, std::nullopt);
  EXPECT_EQ(source.training(), 90 + 18);
  EXPECT_EQ(source.validation(), 10 + 2);

  auto storage = source.storage(1, device::host_memory<device::Cpu>);
  const auto letter_of = [&](std::int64_t sample) {
    return static_cast<char>(source.fill(storage, std::array{sample}).tokens.data()[0]);
  };
  EXPECT_EQ(letter_of(89), 'a');
  EXPECT_EQ(letter_of(90), 'b');
  EXPECT_EQ(letter_of(108), 'a');
  EXPECT_EQ(letter_of(118), 'b');
  EXPECT_EQ(letter_of(119), 'b');

  Sampler sampler = sampler_of(source, 7, 8);
  std::vector<std::int64_t> drawn;
  for (int step = 0; step < 30; ++step, sampler.advance())
    for (const std::int64_t sample : sampler.batch()) drawn.push_back(sample);
  EXPECT_EQ(std::count_if(drawn.begin(), drawn.end(), [&](std::int64_t sample) { return letter_of(sample) == 'a'; }),
            180);

  Sampler resumed = sampler_of(source, 7, 8);  // by pieces, from a position that was saved
  Sampler before = sampler_of(source, 7, 8);
  for (int step = 0; step < 20; ++step) before.advance();
  resumed.restore(before.position());
  std::vector<std::int64_t> shares;
  for (std::int64_t piece = 0; piece < 4; ++piece)
    for (const std::int64_t sample : resumed.slice({.piece = piece, .pieces = 4})) shares.push_back(sample);
  EXPECT_EQ(shares, std::vector(drawn.begin() + 160, drawn.begin() + 168));
  EXPECT_NE(source.identity(),
            TextSource(std::vector{WeightedFiles{files[0].paths, 2}, files[1]}, 4, 0.1, 256, std::nullopt).identity());
}

}  // namespace
}  // namespace fsdp::data
