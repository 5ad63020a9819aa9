// SPDX-License-Identifier: Apache-2.0
#include <algorithm>
#include <array>
#include <cmath>
#include <set>
#include <string>
#include <vector>

#include <gtest/gtest.h>
#include <range/v3/view/chunk.hpp>
#include <range/v3/view/zip.hpp>

#include <tessera/fsdp/device/cpu.hpp>
#include <tessera/fsdp/device/host_memory.hpp>
#include <tessera/trainer/data/sampler.hpp>
#include <tessera/trainer/data/text_source.hpp>
#include <tessera/trainer/data/windows.hpp>
#include "support/temporary_folder.hpp"

namespace fsdp::data {
namespace {

static_assert(check_source<TextSource>() && !Source<Windows>);

std::vector<std::int32_t> values(Tensor<const std::int32_t> list) { return {list.data(), list.data() + list.numel()}; }

TEST(TextSource, PadsABatchWithSequencesWithoutTargets) {
  const test::TemporaryFolder folder;
  const std::array paths = {folder.write("text", "abcdefghijklm")};  // 4 windows of 3, the last for validation
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

TEST(TextSource, TokenFilesAreReportedAndAcceptAnySeparatorToken) {
  const test::TemporaryFolder folder;
  const std::array paths = {folder.write("u16", std::string("\1\0\2\1\3\0\4\0\5\0", 10))};
  const TextSource source(paths, 4, 0, 1000, 258, TokenFormat::u16);
  EXPECT_EQ(source.text(), "5 tokens of 16 bits in 1 file");
  test::expect_parts(source.identity(), {"1 files, 5 tokens of 16 bits, digest "});
  auto storage = source.storage(1, device::host_memory<device::Cpu>);
  const TokenBatch batch = source.fill(storage, std::array<std::int64_t, 1>{0});
  EXPECT_EQ(values(batch.tokens), (std::vector<std::int32_t>{1, 258, 3, 4}));
  EXPECT_EQ(std::vector<std::int64_t>(batch.documents.begin(), batch.documents.end()),
            (std::vector<std::int64_t>{0, 2, 4}));
  EXPECT_INPUT_ERROR(TextSource(paths, 4, 0, 1000, 1000, TokenFormat::u16), "not below the model's vocabulary of 1000");
  EXPECT_INPUT_ERROR(TextSource(std::array{folder.write("text", "abcdef")}, 4, 0, 1000, 256),
                     "--document-separator 256 must be a byte: 0 to 255");
}

TEST(TextSource, AWrongTokenTypeIsDetectedBeforeTheFirstStep) {
  const test::TemporaryFolder folder;
  std::string big_endian;
  for (int i = 0; i < 400; ++i) big_endian += {'\0', static_cast<char>(i < 200 ? 0 : 1 + i % 100)};
  const std::array paths = {folder.write("u16", big_endian)};
  EXPECT_INPUT_ERROR(TextSource(paths, 4, 0, 1000, std::nullopt, TokenFormat::u16),
                     "u16 holds token 5376, which is not below the model's vocabulary of 1000, at byte 440");
}

TEST(TextSource, DrawsFromSeveralCorporaByTheirWeights) {
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

  Sampler resumed = sampler_of(source, 7, 8);  // continues piece by piece from a saved position
  Sampler before = sampler_of(source, 7, 8);
  for (int step = 0; step < 20; ++step) before.advance();
  resumed.restore(before.position());
  std::vector<std::int64_t> shares;
  for (const std::int64_t piece : {0, 1, 2, 3})
    for (const std::int64_t sample : resumed.slice({.piece = piece, .pieces = 4})) shares.push_back(sample);
  EXPECT_EQ(shares, std::vector(drawn.begin() + 160, drawn.begin() + 168));
  EXPECT_NE(source.identity(),
            TextSource(std::vector{WeightedFiles{files[0].paths, 2}, files[1]}, 4, 0.1, 256, std::nullopt).identity());
}

using test::TemporaryFolder;

class WindowsTest : public ::testing::Test {
 protected:
  Corpus corpus(const std::string& text) {
    const std::vector<std::filesystem::path> paths = {folder_.write("text", text)};
    return Corpus(paths);
  }
  TemporaryFolder folder_;
};

TEST(Documents, BeginAtTheWindowStartAndAfterEverySeparator) {
  const auto lengths = [](const std::string& window, std::vector<std::int64_t> before = {0}) {
    const std::vector<std::int32_t> tokens(window.begin(), window.end());
    append_documents(tokens, ';', before);
    return before;
  };
  using Lengths = std::vector<std::int64_t>;
  EXPECT_EQ(lengths("abcd"), (Lengths{0, 4}));
  EXPECT_EQ(lengths("ab;c"), (Lengths{0, 3, 4}));
  EXPECT_EQ(lengths(";a;;b"), (Lengths{0, 1, 3, 4, 5}));
  EXPECT_EQ(lengths("abc;"), (Lengths{0, 4}));  // no document follows in this window
  EXPECT_EQ(lengths("a;b", {0, 2, 7}), (Lengths{0, 2, 7, 9, 10}));
}

TEST_F(WindowsTest, AreConsecutiveAndTargetsAreTheNextTokens) {
  const Corpus text = corpus("abcdefghi");
  const Windows windows(text, 4, 0);
  ASSERT_EQ(windows.count(), 2);
  std::vector<std::int32_t> tokens(4), targets(4);
  windows.fill(1, tokens.data(), targets.data());
  EXPECT_EQ(tokens, (std::vector<std::int32_t>{'e', 'f', 'g', 'h'}));
  EXPECT_EQ(targets, (std::vector<std::int32_t>{'f', 'g', 'h', 'i'}));
  EXPECT_EQ(Windows(corpus("abcdefgh"), 4, 0).count(), 1);
  EXPECT_EQ(Windows(corpus("ab"), 1, 0).count(), 1);
  EXPECT_THROW(windows.fill(2, tokens.data(), targets.data()), LogicError);
}

TEST_F(WindowsTest, TheGoldenTextHasSixWindows) {
  const std::vector<std::filesystem::path> paths = {test::golden("llama-gqa") / "text.bin"};
  const Corpus text(paths);
  EXPECT_EQ(Windows(text, 17, 0).training(), 6);
}

TEST_F(WindowsTest, TheLastPartIsHeldOutForValidation) {
  const Corpus text = corpus(std::string(1001, 'x'));
  const Windows windows(text, 10, 0.25);
  EXPECT_EQ(windows.training(), 75);
  EXPECT_EQ(windows.validation(), 25);
  EXPECT_EQ(Windows(text, 10, 0.001).validation(), 1);
  EXPECT_EQ(evenly_spread(75, 25, 4), (std::vector<std::int64_t>{75, 81, 87, 93}));
  EXPECT_EQ(evenly_spread(75, 25, 99).size(), 25u);
  EXPECT_EQ(evenly_spread(75, 25, 0).back(), 99);
  EXPECT_TRUE(evenly_spread(100, 0, 5).empty());
}

TEST_F(WindowsTest, InvalidLengthsAndFractionsAreInputErrors) {
  const Corpus text = corpus("abcdefgh");
  EXPECT_INPUT_ERROR(Windows(text, 8, 0), "a sequence of 8 tokens and the next one do not fit into the 8 bytes");
  EXPECT_INPUT_ERROR(Windows(text, 0, 0), "at least 1");
  EXPECT_INPUT_ERROR(Windows(text, 4, 1.0), "below 1");
  EXPECT_INPUT_ERROR(Windows(text, 4, -0.1), "at least 0");
  EXPECT_INPUT_ERROR(Windows(text, 4, 0.5), "leave none to train on");
}

TEST_F(WindowsTest, ATokenOutsideTheVocabularyIsAnInputError) {
  const std::array paths = {folder_.write("u32", std::string("\1\0\0\0\2\0\0\0\xff\xff\xff\xff", 12))};
  const Corpus tokens(paths, TokenFormat::u32);
  std::vector<std::int32_t> first(2), next(2);
  EXPECT_INPUT_ERROR(Windows(tokens, 2, 0, 50257).fill(0, first.data(), next.data()), "holds token 4294967295");
  EXPECT_INPUT_ERROR(Windows(tokens, 3, 0, 50257), "do not fit into the 3 tokens");
}

TEST_F(WindowsTest, AByteOutsideTheVocabularyIsAnInputError) {
  const Corpus text = corpus("abcdefgh");
  std::vector<std::int32_t> tokens(7), targets(7);
  EXPECT_NO_THROW(Windows(text, 7, 0, 'h' + 1).fill(0, tokens.data(), targets.data()));
  EXPECT_INPUT_ERROR(Windows(text, 7, 0, 'h').fill(0, tokens.data(), targets.data()), "holds byte 104");
}

TEST(Mixture, EveryPrefixContainsEachSourceInProportionToItsWeight) {
  const std::vector<Mixture::Source> sources = {{.weight = 0.7, .windows = 50},
                                                {.weight = 0.2, .windows = 1000},
                                                {.weight = 0.07, .windows = 3},
                                                {.weight = 0.03, .windows = 7}};
  const Mixture mixture(5, sources);
  std::vector<double> counts(sources.size());
  for (std::int64_t n = 0; n < 20000; ++n) {
    const Mixture::Window drawn = mixture(n);
    ASSERT_LT(drawn.window, sources[drawn.source].windows);
    ++counts[drawn.source];
    for (const auto& [count, source] : ranges::views::zip(counts, sources))
      ASSERT_LE(std::abs(count - source.weight * static_cast<double>(n + 1)), 4) << n << " weight " << source.weight;
  }
}

TEST(Mixture, EachSourceIsReadCompletelyBeforeItRepeatsReshuffled) {
  const Mixture mixture(5, {{.weight = 3, .windows = 20}, {.weight = 1, .windows = 5}});
  std::array<std::vector<std::int64_t>, 2> read;
  for (std::int64_t n = 0; n < 160; ++n) read[mixture(n).source].push_back(mixture(n).window);
  ASSERT_EQ(read[0].size(), 120u);
  for (const auto& pass : ranges::views::chunk(read[0], 20))
    EXPECT_EQ(std::set<std::int64_t>(pass.begin(), pass.end()).size(), 20u);
  EXPECT_FALSE(std::equal(read[0].begin(), read[0].begin() + 20, read[0].begin() + 20));
}

TEST(Mixture, DependsOnlyOnTheSeedAndTheWeights) {
  const std::vector<Mixture::Source> sources = {{.weight = 1, .windows = 40}, {.weight = 1, .windows = 40}};
  const Mixture one(1, sources), same(1, sources), other(2, sources);
  int equal = 0;
  for (std::int64_t n = 0; n < 80; ++n) {
    EXPECT_EQ(one(n), same(n));
    equal += one(n) == other(n);
  }
  EXPECT_LT(equal, 20);
  EXPECT_LT(one(std::int64_t{1} << 50).window, 40);
}

}  // namespace
}  // namespace fsdp::data
