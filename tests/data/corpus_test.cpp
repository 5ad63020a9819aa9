// SPDX-License-Identifier: Apache-2.0
#include <fsdp/data/corpus.hpp>

#include <gtest/gtest.h>

#include <fstream>

#include "support/temporary_folder.hpp"

namespace fsdp::data {
namespace {

using test::TemporaryFolder;

Corpus corpus_of(const std::vector<std::filesystem::path>& paths) { return Corpus(paths); }

std::string text_of(const Corpus& corpus, std::int64_t begin, std::int64_t count) {
  std::vector<std::uint8_t> bytes(static_cast<std::size_t>(count));
  corpus.copy(begin, bytes);
  return {bytes.begin(), bytes.end()};
}

TEST(Corpus, AFolderIsItsFilesSortedByPath) {
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

TEST(Corpus, MissingOrEmptyDataAreInputErrors) {
  const TemporaryFolder folder;
  EXPECT_INPUT_ERROR(corpus_of({}), "no file or folder was given");
  EXPECT_INPUT_ERROR(corpus_of({folder.path() / "absent"}), "absent: no such file or folder");
  EXPECT_INPUT_ERROR(corpus_of({folder.path()}), "holds no text (0 binary files were skipped)");
  EXPECT_INPUT_ERROR(corpus_of({folder.write("empty", "")}), "holds no text");
  EXPECT_INPUT_ERROR(corpus_of({folder.write("binary", std::string(9, '\0'))}), "1 binary files were skipped");
  EXPECT_INPUT_ERROR(corpus_of({"/dev/null"}), "neither a file nor a folder");
}

TEST(Corpus, AFileThatShrinksMeanwhileIsAnInputErrorAndNoCrash) {
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
  std::vector<std::uint8_t> window(4096);
  for (std::int64_t begin = 0; begin + 4096 <= corpus.size(); begin += 4096) corpus.copy(begin, window);
  EXPECT_LT((resident_pages() - before) * 4096, 8 << 20);
}

}  // namespace
}  // namespace fsdp::data
