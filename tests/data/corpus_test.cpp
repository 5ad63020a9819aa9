// SPDX-License-Identifier: Apache-2.0
#include <tessera/trainer/data/corpus.hpp>

#include <gtest/gtest.h>

#include <fstream>

#include "support/temporary_folder.hpp"

namespace fsdp::data {
namespace {

using test::TemporaryFolder;

using Tokens = std::vector<std::uint32_t>;

Corpus corpus_of(const std::vector<std::filesystem::path>& paths, TokenFormat format = TokenFormat::automatic) {
  return Corpus(paths, format);
}

Tokens tokens_of(const Corpus& corpus, std::int64_t begin, std::int64_t count) {
  Tokens tokens(static_cast<std::size_t>(count));
  corpus.copy(begin, tokens);
  return tokens;
}

std::string text_of(const Corpus& corpus, std::int64_t begin, std::int64_t count) {
  const Tokens tokens = tokens_of(corpus, begin, count);
  return {tokens.begin(), tokens.end()};
}

TEST(Corpus, AFolderIsReadAsItsFilesSortedByPath) {
  const TemporaryFolder folder;
  folder.write("b.txt", "second ");
  folder.write("a/z.txt", "first ");
  folder.write("c/d/e.txt", "third");
  folder.write("c/empty.txt", "");
  const Corpus corpus = corpus_of({folder.path()});

  EXPECT_EQ(corpus.size(), 18);
  EXPECT_EQ(corpus.files().size(), 3u);
  EXPECT_EQ(text_of(corpus, 0, 18), "first second third");
  EXPECT_EQ(text_of(corpus, 4, 4), "t se");
  EXPECT_EQ(text_of(corpus, 13, 5), "third");
  EXPECT_EQ(text_of(corpus, 18, 0), "");
}

TEST(Corpus, PathsKeepTheirOrder) {
  const TemporaryFolder folder;
  const auto a = folder.write("a", "A"), b = folder.write("b", "B");
  EXPECT_EQ(text_of(corpus_of({b, a, b}), 0, 3), "BAB");
}

TEST(Corpus, BinaryFilesAreSkippedWithACount) {
  const TemporaryFolder folder;
  folder.write("image", std::string("\x89PNG\0", 5));
  folder.write("late", std::string(8192, 'x') + std::string(1, '\0'));
  folder.write("text", "hello");
  const Corpus corpus = corpus_of({folder.path()});
  EXPECT_EQ(corpus.skipped_binary(), 1);
  EXPECT_EQ(corpus.size(), 8193 + 5);
}

TEST(Corpus, ReadsRangesAcrossPagesOfLargeFiles) {
  const TemporaryFolder folder;
  std::string large;
  for (int i = 0; i < 30000; ++i) large += static_cast<char>('a' + i * i % 26);
  folder.write("1", large);
  folder.write("2", large);
  const Corpus corpus = corpus_of({folder.path()});
  EXPECT_EQ(text_of(corpus, 4095, 9000), large.substr(4095, 9000));
  EXPECT_EQ(text_of(corpus, 29999, 2), large.substr(29999) + large.substr(0, 1));
  EXPECT_EQ(text_of(corpus, 0, 60000), large + large);
}

/// Numbers as little-endian bytes.
std::string bytes_of(const Tokens& numbers, int width) {
  std::string bytes;
  for (const std::uint32_t number : numbers)
    for (int i = 0; i < width; ++i) bytes += static_cast<char>(number >> 8 * i & 255);
  return bytes;
}

/// The content of a token file in the format of llm.c.
std::string llm_c(std::uint32_t magic, std::uint32_t version, const Tokens& tokens, int width) {
  Tokens header(256);
  header[0] = magic, header[1] = version, header[2] = static_cast<std::uint32_t>(tokens.size());
  return bytes_of(header, 4) + bytes_of(tokens, width);
}

TEST(Corpus, TokenFilesOfLlmCAreRecognizedByTheirHeaders) {
  const TemporaryFolder folder;
  const Tokens first = {50256, 0, 65535, 7}, second = {1, 2};
  folder.write("gpt2/1.bin", llm_c(20240520, 1, first, 2));
  folder.write("gpt2/2.bin", llm_c(20240520, 1, second, 2));
  const Corpus gpt2 = corpus_of({folder.path() / "gpt2"});
  EXPECT_EQ(gpt2.size(), 6);
  EXPECT_EQ(gpt2.layout().token_bytes, 2);
  EXPECT_EQ(tokens_of(gpt2, 0, 6), (Tokens{50256, 0, 65535, 7, 1, 2}));
  EXPECT_EQ(tokens_of(gpt2, 3, 2), (Tokens{7, 1}));

  const Tokens large = {128000, 0, 0xffffffff};
  const Corpus llama3 = corpus_of({folder.write("llama3.bin", llm_c(20240801, 7, large, 4))});
  EXPECT_EQ(llama3.layout().token_bytes, 4);
  EXPECT_EQ(tokens_of(llama3, 0, 3), large);
}

TEST(Corpus, TokensWithoutAHeaderAreReadIfTheFormatIsSpecified) {
  const TemporaryFolder folder;
  const Tokens tokens = {300, 0, 65535, 12};
  const auto u16 = folder.write("u16", bytes_of(tokens, 2)), u32 = folder.write("u32", bytes_of(tokens, 4));
  EXPECT_EQ(tokens_of(corpus_of({u16}, TokenFormat::u16), 0, 4), tokens);
  EXPECT_EQ(tokens_of(corpus_of({u32}, TokenFormat::u32), 1, 3), (Tokens{0, 65535, 12}));
  EXPECT_EQ(tokens_of(corpus_of({u32, u32}, TokenFormat::u32), 3, 2), (Tokens{12, 300}));
  EXPECT_EQ(corpus_of({u32}, TokenFormat::u16).size(), 8);
}

TEST(Corpus, InvalidOrMismatchedTokenFilesAreInputErrors) {
  const TemporaryFolder folder;
  const auto text = folder.write("text", "hello"), odd = folder.write("odd", std::string(7, 'x'));
  const auto known = folder.write("known.bin", llm_c(20240520, 1, {1, 2, 3}, 2));
  const auto late = folder.write("late.bin", llm_c(20240520, 2, {1}, 2));
  const auto cut = folder.write("cut.bin", llm_c(20240520, 1, {1, 2, 3}, 2).substr(0, 1029));
  const auto none = folder.write("none.bin", llm_c(20240801, 7, {}, 4));
  EXPECT_INPUT_ERROR(corpus_of({odd}, TokenFormat::u16), "odd has 7 bytes, which are no whole number of tokens of 16");
  EXPECT_INPUT_ERROR(corpus_of({known}, TokenFormat::u16), "begins with llm.c's header, and --data-format u16");
  EXPECT_INPUT_ERROR(corpus_of({late}), "is a token file of llm.c, version 2; version 1 is known");
  EXPECT_INPUT_ERROR(corpus_of({cut}), "holds 3 tokens, which make 1030 bytes, and has 1029");
  EXPECT_INPUT_ERROR(corpus_of({none}), "holds no tokens");
  EXPECT_INPUT_ERROR(corpus_of({text, known}), "text holds bytes, and ");
  EXPECT_INPUT_ERROR(corpus_of({known, text}), "text bytes; give one kind alone");
  EXPECT_EQ(corpus_of({known, text}, TokenFormat::bytes).skipped_binary(), 1);
}

TEST(Corpus, MissingOrEmptyDataAreInputErrors) {
  const TemporaryFolder folder;
  EXPECT_INPUT_ERROR(corpus_of({}), "no file or folder was given");
  EXPECT_INPUT_ERROR(corpus_of({folder.path() / "absent"}), "absent: no such file or folder");
  EXPECT_INPUT_ERROR(corpus_of({folder.path()}), "there is no text in ");
  EXPECT_INPUT_ERROR(corpus_of({folder.write("empty", "")}), "there is no text in ");
  EXPECT_INPUT_ERROR(corpus_of({folder.write("binary", std::string(9, '\0'))}), "binary 1 (");
  EXPECT_INPUT_ERROR(corpus_of({"/dev/null"}), "neither a file nor a folder");
}

TEST(Corpus, AFileThatShrinksWhileReadIsAnInputErrorNotACrash) {
  const TemporaryFolder folder;
  const auto path = folder.write("text", std::string(20000, 'x'));
  const Corpus corpus = corpus_of({path});
  std::filesystem::resize_file(path, 10);
  EXPECT_INPUT_ERROR(text_of(corpus, 0, 20000), "had 20000 bytes at the start and has 10 now");
  EXPECT_THROW(text_of(corpus, 0, 20001), LogicError);
}

std::int64_t resident_pages() {
  std::ifstream statm("/proc/self/statm");
  std::int64_t total = 0, resident = 0;
  statm >> total >> resident;
  return resident;
}

TEST(Corpus, ResidentMemoryDoesNotGrowWithTheData) {
  const TemporaryFolder folder;
  for (int i = 0; i < 32; ++i) folder.write("large" + std::to_string(i), std::string(1 << 20, 'x'));
  const std::int64_t before = resident_pages();
  const Corpus corpus = corpus_of({folder.path()});
  Tokens window(4096);
  for (std::int64_t begin = 0; begin + 4096 <= corpus.size(); begin += 4096) corpus.copy(begin, window);
  EXPECT_LT((resident_pages() - before) * 4096, 8 << 20);
}

}  // namespace
}  // namespace fsdp::data
