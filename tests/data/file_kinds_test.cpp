// SPDX-License-Identifier: Apache-2.0
#include <sys/stat.h>

#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include <gtest/gtest.h>

#include <tessera/trainer/data/corpus.hpp>
#include "src/trainer/data/files/input_files.hpp"
#include "support/temporary_folder.hpp"

namespace fsdp::data::file_kinds_test {
namespace {

using namespace std::string_literals;
using test::TemporaryFolder;

Corpus corpus_of(const std::filesystem::path& path, TokenFormat format = TokenFormat::automatic) {
  return Corpus(std::vector{path}, format);
}

/// Integers of `width` bytes, in the format of numpy's tofile.
template <class Number>
std::string integers(int count, const Number& number, std::size_t width) {
  std::string bytes;
  for (int i = 0; i < count; ++i) {
    const auto value = static_cast<std::uint64_t>(number(i));
    for (std::size_t byte = 0; byte < width; ++byte) bytes += static_cast<char>(byte < 8 ? value >> 8 * byte : 0);
  }
  return bytes;
}
std::int64_t of_gpt2(int i) { return (i * 7919 + 13) % 50257; }

std::string numpy(const std::string& type, const std::string& rest) {
  std::string header = "{'descr': '" + type + "', 'fortran_order': False, 'shape': (3000,), }";
  header.resize(117, ' ');
  return "\x93NUMPY\1\0\x76\0"s + header + "\n" + rest;
}

const std::vector<std::pair<std::string, std::string>> formats = {
    {"\x1f\x8b\x08\0"s, "compressed by gzip"},
    {"\x28\xb5\x2f\xfd"s, "compressed by zstd"},
    {"\xfd"
     "7zXZ\0"s,
     "compressed by xz"},
    {"BZh91AY&SY\x80"s, "compressed by bzip2"},
    {"PK\x03\x04\x14\0"s, "a zip archive, as numpy.savez and torch.save write too"},
    {"PAR1\x15\x04"s, "a Parquet file"},
    {"ARROW1\0\0"s, "an Arrow file"},
    {"\xff\xff\xff\xff\x58\1\0\0\x10\0\0\0\0\0\x0a\0"s, "a stream of Arrow"},
    {"\x89HDF\r\n\x1a\n"s, "an HDF5 file"},
    {"\x80\x04\x95\x0b\0\0\0\0\0\0\0\x5d\x94"s, "a pickle of Python"},
    {"\x40\0\0\0\0\0\0\0{\"a\":1}"s, "weights in safetensors"},
    {"\x7f"
     "ELF\2\1\1\0"s,
     "a program (ELF)"},
    {"MMIDIDX\0\0\1"s, "an index of Megatron-LM's tokens"},
    {"version https://git-lfs.github.com/spec/v1\noid sha256:12\nsize 5\n"s, "a pointer of Git LFS, without the data"},
};

TEST(FileKinds, KnownBinaryFormatsAreNeitherTokensNorText) {
  const TemporaryFolder folder;
  for (const auto& [bytes, name] : formats) {
    SCOPED_TRACE(name);
    const auto path = folder.write("data", bytes + std::string(bytes.size() % 2, '\0'));
    for (const TokenFormat format : {TokenFormat::u16, TokenFormat::u32})
      EXPECT_INPUT_ERROR(corpus_of(path, format), "data is " + name + ", and --data-format " + to_text(format));
    EXPECT_INPUT_ERROR(corpus_of(path), "data is " + name + ", which is not read; ");
  }
}

TEST(FileKinds, KnownBinaryFormatsInFoldersAreSkippedAndCounted) {
  const TemporaryFolder folder;
  folder.write("all/a.gz", formats[0].first);
  folder.write("all/b.gz", formats[0].first);
  folder.write("all/c.bin", "x\0y"s);
  folder.write("all/d.txt", "hello");
  const Corpus corpus = corpus_of(folder.path() / "all");
  EXPECT_EQ(corpus.size(), 5);
  EXPECT_EQ(corpus.skipped_binary(), 3);
  const std::string all = (folder.path() / "all").string();
  EXPECT_EQ(corpus.left_out().text(),
            "left out: compressed by gzip 2 (" + all + "/a.gz, ...), binary 1 (" + all + "/c.bin)");
  std::filesystem::remove(folder.path() / "all/d.txt");
  EXPECT_INPUT_ERROR(corpus_of(folder.path() / "all"), "compressed by gzip 2");
}

TEST(FileKinds, AGitLfsPointerIsRefusedInFoldersToo) {
  const TemporaryFolder folder;
  folder.write("a.txt", "hello");
  folder.write("b.txt", formats.back().first);
  EXPECT_INPUT_ERROR(corpus_of(folder.path()),
                     "b.txt is a pointer of Git LFS, without the data, which is not read; "
                     "fetch the data by git lfs pull");
  folder.write("b.txt", formats.back().first + std::string(2000, 'x'));  // a text about the format
  EXPECT_GT(corpus_of(folder.path()).size(), 2000);
}

TEST(FileKinds, ATextFileMayBeginWithTheMagicBytesOfAFormat) {
  const TemporaryFolder folder;
  for (const char* text : {"PAR1 is a gene", "GGUF is read elsewhere", "%PDF-1.4 begins a document", "FEA1"})
    EXPECT_EQ(corpus_of(folder.write("a.txt", text)).size(), std::ssize(std::string_view(text)));
}

TEST(FileKinds, ANumpyFileIsReportedWithItsTypeAndShape) {
  const TemporaryFolder folder;
  const auto path = folder.write("a.npy", numpy("<i8", integers(3000, of_gpt2, 8)));
  EXPECT_INPUT_ERROR(corpus_of(path, TokenFormat::u16),
                     "a.npy is an array of NumPy (dtype <i8, shape (3000,)), and --data-format u16 is of files that "
                     "hold tokens alone; write its tokens alone, by numpy.load(FILE).astype(numpy.uint16)");
  const auto hostile = folder.write("b.npy", numpy("<i\x1b[31m", ""));
  EXPECT_INPUT_ERROR(corpus_of(hostile, TokenFormat::u16), "(dtype ?, shape (3000,))");
}

TEST(FileKinds, WiderIntegersAreNotReadAsNarrowTokens) {
  const TemporaryFolder folder;
  const auto write = [&](int count, const auto& number, std::size_t width) {
    return folder.write("tokens", integers(count, number, width));
  };
  EXPECT_INPUT_ERROR(corpus_of(write(3000, of_gpt2, 4), TokenFormat::u16), "holds integers of 32 bits");
  EXPECT_INPUT_ERROR(corpus_of(write(3000, of_gpt2, 8), TokenFormat::u16), "holds integers of 64 bits");
  EXPECT_INPUT_ERROR(corpus_of(write(3000, of_gpt2, 8), TokenFormat::u32), "holds integers of 64 bits");
  const auto of_llama3 = [](int i) { return (std::int64_t{i} * 7919 + 13) % 128256; };
  EXPECT_INPUT_ERROR(corpus_of(write(30000, of_llama3, 4), TokenFormat::u16), "say --data-format u32");
  EXPECT_EQ(corpus_of(write(30000, of_llama3, 4), TokenFormat::u32).size(), 30000);
  EXPECT_EQ(corpus_of(write(3001, of_gpt2, 2), TokenFormat::u16).size(), 3001);
  EXPECT_EQ(corpus_of(write(
                          3000, [](int) { return 0; }, 2),
                      TokenFormat::u16)
                .size(),
            3000);
  const auto few = [](int i) { return i % 5; };  // few distinct tokens, as for bases of genomes
  EXPECT_EQ(corpus_of(write(3000, few, 2), TokenFormat::u16).size(), 3000);
  const auto end = [](int i) { return i < 15000 ? of_gpt2(i) : i % 2 * of_gpt2(i); };  // zeros in the second half only
  EXPECT_EQ(corpus_of(write(30000, end, 2), TokenFormat::u16).size(), 30000);
}

TEST(FileKinds, TextIsNotReadAsTokens) {
  const TemporaryFolder folder;
  const auto path = folder.write("prepare.py", "import numpy\n" + std::string(99, '#') + "\n\n");
  EXPECT_INPUT_ERROR(corpus_of(path, TokenFormat::u16), "prepare.py is text, and --data-format u16 is of files that");
  EXPECT_INPUT_ERROR(corpus_of(folder.path(), TokenFormat::u32), "prepare.py is text");
}

TEST(FileKinds, AMegatronIndexIsNotReadAsTokens) {
  const TemporaryFolder folder;
  folder.write("corpus.idx", "MMIDIDX\0\0"s + std::string(99, '\0'));
  const auto tokens = folder.write("corpus.bin", integers(100, of_gpt2, 2));
  EXPECT_INPUT_ERROR(corpus_of(tokens, TokenFormat::u16), "corpus.idx is an index of Megatron-LM's tokens");
}

struct Folder : TemporaryFolder {
  InputFiles inputs(const std::string& below = "") const { return input_files(std::vector{path() / below}); }

  std::string files(const InputFiles& of) const {
    std::string names;
    for (const InputFile& file : of.files) names += file.path.lexically_relative(path()).string() + " ";
    return names;
  }
};

TEST(InputFiles, HiddenFilesAndEditorBackupsInFoldersAreSkipped) {
  const Folder folder;
  for (const char* name : {"data/.git/config", "data/.git/HEAD", "data/.DS_Store", "data/a.txt", "data/b.txt~",
                           "data/#c.txt#", "data/d.swp", "data/sub/.e.txt", "data/sub/f.tmp", "data/sub/g.TXT",
                           "data/h.jsonl.bak", "data/i.txt.orig", "data/run.lock"})
    folder.write(name, "x");
  const InputFiles inputs = folder.inputs("data");
  EXPECT_EQ(folder.files(inputs), "data/a.txt data/sub/g.TXT ");
  const std::string data = (folder.path() / "data").string();
  EXPECT_EQ(inputs.left_out.text(), "left out: leftovers of editors 6 (" + data + "/#c.txt#, ...), hidden 3 (" + data +
                                        "/.DS_Store, ...), locks of runs 1 (" + data + "/run.lock)");
  EXPECT_EQ(inputs.left_out.binary(), 0);
}

TEST(InputFiles, HiddenFilesThatAreGivenExplicitlyAreRead) {
  const Folder folder;
  folder.write(".cache/.hidden", "x");
  folder.write(".cache/a.txt", "x");
  EXPECT_EQ(folder.files(folder.inputs(".cache")), ".cache/a.txt ");
  EXPECT_EQ(folder.files(folder.inputs(".cache/.hidden")), ".cache/.hidden ");
}

TEST(InputFiles, LinksAreFollowedAndEachFolderIsReadOnce) {
  const Folder folder;
  folder.write("blobs/1", "x");
  folder.write("data/a/b.txt", "x");
  std::filesystem::create_symlink("../../blobs/1", folder.path() / "data/a/c.txt");
  std::filesystem::create_directory_symlink("..", folder.path() / "data/a/loop");
  std::filesystem::create_directory_symlink("../blobs", folder.path() / "data/elsewhere");
  std::filesystem::create_symlink("nowhere", folder.path() / "data/broken");
  std::filesystem::create_symlink("self", folder.path() / "data/self");
  ASSERT_EQ(::mkfifo((folder.path() / "data/pipe").c_str(), 0600), 0);
  const InputFiles inputs = folder.inputs("data");
  EXPECT_EQ(folder.files(inputs), "data/a/b.txt data/a/c.txt data/elsewhere/1 ");
  const std::string text = inputs.left_out.text();
  test::expect_parts(
      text, {"links to nothing 2 (", "neither files nor folders 1 (", "links to folders that are read already 1 ("});
}

}  // namespace
}  // namespace fsdp::data::file_kinds_test
