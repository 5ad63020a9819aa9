// SPDX-License-Identifier: Apache-2.0
#include "src/trainer/data/formats/token_files.hpp"

#include <array>
#include <limits>
#include <optional>
#include <string>
#include <vector>

#include <gtest/gtest.h>

#include <tessera/fsdp/device/cpu.hpp>
#include <tessera/fsdp/device/host_memory.hpp>
#include <tessera/trainer/data/corpus.hpp>
#include <tessera/trainer/data/text_source.hpp>
#include <tessera/trainer/data/windows.hpp>

#include "support/temporary_folder.hpp"

namespace fsdp::data {
namespace {

template <class T>
std::string bytes_of(const std::vector<T>& values) {
  const auto* const bytes = reinterpret_cast<const char*>(values.data());
  return {bytes, bytes + values.size() * sizeof(T)};
}

struct IndexFile {
  std::uint64_t version = 1;
  std::uint8_t type = 8;
  std::vector<std::int32_t> lengths = {3, 0, 2};
  std::vector<std::int64_t> places = {0, 6, 6};
  std::vector<std::int64_t> documents = {0, 2, 3};
  std::uint64_t sequences = 3;

  std::string text() const {
    return std::string("MMIDIDX\0\0", 9) + bytes_of(std::vector{version}) + static_cast<char>(type) +
           bytes_of(std::vector<std::uint64_t>{sequences, documents.size()}) + bytes_of(lengths) + bytes_of(places) +
           bytes_of(documents);
  }
};

std::vector<std::uint32_t> tokens_of(const std::filesystem::path& path) {
  const Corpus corpus(std::vector{path});
  std::vector<std::uint32_t> tokens(static_cast<std::size_t>(corpus.size()));
  corpus.copy(0, tokens);
  return tokens;
}

TEST(Megatron, TokensAreFoundByIndexDataFilePrefixOrFolder) {
  const test::TemporaryFolder folder;
  folder.write("a.idx", IndexFile{}.text());
  folder.write("a.bin", bytes_of(std::vector<std::uint16_t>{1, 2, 3, 4, 65535}));
  const std::vector<std::uint32_t> wanted = {1, 2, 3, 4, 65535};
  for (const char* const name : {"a.idx", "a.bin", "a", "."})
    EXPECT_EQ(tokens_of(folder.path() / name), wanted) << name;
}

template <class T>
void expect_type(std::uint8_t type, const std::vector<T>& tokens, const std::vector<std::uint32_t>& wanted) {
  const test::TemporaryFolder folder;
  folder.write("a.idx", IndexFile{.type = type,
                                  .lengths = {static_cast<std::int32_t>(tokens.size())},
                                  .places = {0},
                                  .documents = {0, 1},
                                  .sequences = 1}
                            .text());
  folder.write("a.bin", bytes_of(tokens));
  EXPECT_EQ(tokens_of(folder.path() / "a"), wanted) << int{type};
}

TEST(Megatron, EveryTokenTypeIsReadAndNegativeTokensBecomeInvalid) {
  constexpr std::uint32_t none = 0xFFFFFFFF;
  expect_type<std::uint8_t>(1, {0, 200}, {0, 200});
  expect_type<std::int8_t>(2, {5, -1}, {5, none});
  expect_type<std::int16_t>(3, {300, -300}, {300, none});
  expect_type<std::int32_t>(4, {100'000, -2}, {100'000, none});
  expect_type<std::int64_t>(5, {100'000, -3, std::int64_t{1} << 40}, {100'000, none, none});
  expect_type<std::uint16_t>(8, {40'000}, {40'000});
}

TEST(Megatron, MaliciousIndexesAreRefused) {
  const test::TemporaryFolder folder;
  folder.write("a.bin", bytes_of(std::vector<std::uint16_t>{1, 2, 3, 4, 5}));
  const auto read = [&](const IndexFile& file, std::size_t cut = 0, const std::string& more = "") {
    const std::string text = file.text();
    return read_megatron_index(folder.write("a.idx", text.substr(0, text.size() - cut) + more));
  };
  EXPECT_EQ(read({}).tokens, 5);
  EXPECT_INPUT_ERROR(read({.version = 2}), "a.idx is an index of version 2; version 1 is known");
  EXPECT_INPUT_ERROR(read({.type = 6}), "tokens are of type 6 (float64); uint8");
  EXPECT_INPUT_ERROR(read({.type = 200}), "tokens are of type 200 (?)");
  EXPECT_INPUT_ERROR(read({}, 1), "it is cut off or damaged");
  EXPECT_INPUT_ERROR(read({}, 0, "x"), "it is cut off or damaged");
  EXPECT_INPUT_ERROR(read({}, IndexFile{}.text().size() - 20), "fewer than its header's 34");
  EXPECT_INPUT_ERROR(read({.sequences = 4}), "says that it holds 4 sequences and 3 documents");
  EXPECT_INPUT_ERROR(read({.sequences = std::numeric_limits<std::uint64_t>::max()}), "it is cut off or damaged");
  EXPECT_INPUT_ERROR(read({.sequences = (std::uint64_t{1} << 62) + 3}), "it is cut off or damaged");
  EXPECT_INPUT_ERROR(read({.lengths = {3, -1, 3}}), "sequence 1 has the length -1");
  EXPECT_INPUT_ERROR(read({.lengths = {3, 0, 2147483647}}), "sequence 2 ends at byte 4294967300, and ");
  EXPECT_INPUT_ERROR(read({.places = {0, 6, 4}}), "sequence 2 begins at byte 4, and the one before ends at 6");
  EXPECT_INPUT_ERROR(read({.places = {0, 6, -6}}), "sequence 2 begins at byte -6");
  EXPECT_INPUT_ERROR(read({.lengths = {3, 0, 1}}), "its sequences end at byte 8, and ");
}

TEST(Megatron, AMultimodalIndexIsReadIfAllSequencesAreText) {
  const test::TemporaryFolder folder;
  folder.write("a.bin", bytes_of(std::vector<std::uint16_t>{1, 2, 3, 4, 5}));
  EXPECT_EQ(read_megatron_index(folder.write("a.idx", IndexFile{}.text() + std::string(3, '\0'))).tokens, 5);
  EXPECT_INPUT_ERROR(read_megatron_index(folder.write("a.idx", IndexFile{}.text() + std::string("\0\0\2", 3))),
                     "a.idx: sequence 2 has the mode 2, as images of a multimodal set");
}

TEST(Megatron, DocumentsBeginAtTheirFirstTokens) {
  const test::TemporaryFolder folder;
  folder.write("a.bin", bytes_of(std::vector<std::uint16_t>{1, 2, 3, 4, 5}));
  const auto documents = [&](const std::vector<std::int64_t>& entries) {
    return read_megatron_documents(folder.write("a.idx", IndexFile{.documents = entries}.text()));
  };
  using Places = std::vector<std::int64_t>;
  EXPECT_EQ(documents({0, 2, 3}), (Places{0, 3}));
  EXPECT_EQ(documents({0, 1, 2, 3}), (Places{0, 3}));  // sequence 1 has no token
  EXPECT_EQ(documents({0, 3}), Places{0});
  EXPECT_EQ(documents({}), Places{});
  EXPECT_INPUT_ERROR(documents({0, 4}), "document 1 begins at sequence 4, behind 0 and of 3; it is damaged");
  EXPECT_INPUT_ERROR(documents({0, 2, 1, 3}), "document 2 begins at sequence 1, behind 2");
  EXPECT_INPUT_ERROR(documents({1, 3}), "document 0 begins at sequence 1");
}

TEST(Megatron, TheIndexSeparatesDocumentsIfRequested) {
  const test::TemporaryFolder folder;
  folder.write("a.idx", IndexFile{.lengths = {3, 4, 6}, .places = {0, 6, 14}, .documents = {0, 1, 2, 3}}.text());
  folder.write("a.bin", bytes_of(std::vector<std::uint16_t>{1, 2, 3, 1, 2, 3, 4, 1, 2, 3, 4, 5, 6}));
  const std::vector paths = {folder.path() / "a"};
  DocumentSeparator by_index;
  from_text("document-separator", "index", by_index);
  EXPECT_EQ(to_text(by_index), "index");
  const auto documents = [&](std::optional<DocumentSeparator> separator) {
    const TextSource source(paths, 6, 0, 100, separator);
    auto storage = source.storage(2, device::host_memory<device::Cpu>);
    const TokenBatch batch = source.fill(storage, std::array<std::int64_t, 2>{0, 1});
    return std::vector<std::int64_t>(batch.documents.begin(), batch.documents.end());
  };
  EXPECT_EQ(documents(by_index), (std::vector<std::int64_t>{0, 3, 6, 7, 12}));
  EXPECT_EQ(documents(4), (std::vector<std::int64_t>{0, 6, 7, 11, 12}));
  EXPECT_EQ(TextSource(paths, 6, 0, 100, by_index).losses(), "");
  EXPECT_EQ(
      TextSource(paths, 6, 0, 100, std::nullopt).losses(),
      "the index lists 3 documents, whose borders attention crosses (--document-separator index keeps them apart)");
  EXPECT_INPUT_ERROR(documents(99),
                     "--document-separator 99: no token 99 among 13, so that documents would not be kept apart (the "
                     "index lists 3 documents: --document-separator index)");
  EXPECT_INPUT_ERROR(TextSource(std::vector{folder.write("b.txt", "abcdefgh")}, 2, 0, 256, by_index),
                     "b.txt has no index of Megatron-LM");
  EXPECT_INPUT_ERROR(from_text("document-separator", "indx", by_index),
                     "--document-separator 'indx' is not a whole number and not index");
}

TEST(Megatron, ATokenOutsideTheVocabularyIsReportedWithFileAndByte) {
  const test::TemporaryFolder folder;
  folder.write("a.idx", IndexFile{.type = 3}.text());
  folder.write("a.bin", bytes_of(std::vector<std::int16_t>{1, 2, 3, -4, 5}));
  std::filesystem::create_directory(folder.path() / "a");  // as --checkpoint-dir a creates it
  const Corpus corpus(std::vector{folder.path() / "a"});
  const Windows windows(corpus, 2, 0, 100);
  std::vector<std::int32_t> tokens(2), targets(2);
  windows.fill(0, tokens.data(), targets.data());
  EXPECT_INPUT_ERROR(windows.fill(1, tokens.data(), targets.data()),
                     "a.bin holds token 4294967295, which is not below the model's vocabulary of 100, at byte 6");
}

}  // namespace
}  // namespace fsdp::data
