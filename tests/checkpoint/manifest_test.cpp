// SPDX-License-Identifier: Apache-2.0
#include "src/fsdp/checkpoint/manifest.hpp"

#include <gtest/gtest.h>

#include <algorithm>
#include <random>

#include <tessera/fsdp/checkpoint/folder.hpp>

#include "src/fsdp/checkpoint/posix.hpp"
#include "support/saved_llama.hpp"
#include "support/temporary_folder.hpp"

namespace fsdp::checkpoint {
namespace {

using test::content_of;
using test::SavedFolder;
using test::TemporaryFolder;

std::span<const std::byte> bytes_of(std::string_view text) { return std::as_bytes(std::span(text)); }

std::string random_text(std::size_t bytes) {
  std::mt19937_64 draw(bytes);
  std::string text(bytes, '\0');
  for (char& c : text) c = static_cast<char>(draw());
  return text;
}

std::string flipped(std::string text, std::size_t bit) {
  text[bit / 8] = static_cast<char>(text[bit / 8] ^ 1 << bit % 8);
  return text;
}

TEST(Crc32c, MatchesTheTestVectorsOfRfc3720) {
  EXPECT_EQ(crc32c(bytes_of("123456789")), 0xe3069283u);
  EXPECT_EQ(crc32c(bytes_of(std::string(32, '\0'))), 0x8a9136aau);
  EXPECT_EQ(crc32c({}), 0u);
}

TEST(Crc32c, ChecksumsOfPartsCombineInAnyOrder) {
  const std::string text = random_text(1000);
  for (const std::size_t first : {0, 1, 7, 500, 999})
    for (const std::size_t second : {first, (first + 1000) / 2, std::size_t{1000}}) {
      std::uint32_t remainder = 0;
      for (const auto& [begin, end] : {std::pair(second, std::size_t{1000}), {first, second}, {std::size_t{0}, first}})
        remainder ^=
            shifted(remainder_of(bytes_of(text).subspan(begin, end - begin)), static_cast<std::int64_t>(1000 - end));
      EXPECT_EQ(crc32c_of(remainder, 1000), crc32c(bytes_of(text))) << first << " " << second;
    }
}

TEST(FileSums, ChecksumsOfRanksCombineToThoseOfTheFileForAnyCut) {
  const std::string text = random_text(200'000);
  for (const std::size_t piece : {1'000, 65'535, 65'536, 65'537, 131'072, 200'000}) {
    std::vector<WrittenSums> ranks(3, WrittenSums(std::ssize(text)));
    for (std::size_t begin = 0, i = 0; begin < text.size(); begin += piece, ++i)
      ranks[i % 3].add(static_cast<std::int64_t>(begin),
                       bytes_of(text).subspan(begin, std::min(piece, text.size() - begin)));
    std::vector<WrittenSums::Share> shares;
    for (const WrittenSums& rank : ranks) shares.insert(shares.end(), rank.shares().begin(), rank.shares().end());
    EXPECT_EQ(combined("file", std::ssize(text), 0, shares), sums_of(text)) << piece;

    const std::size_t last = (text.size() - 1) / piece * piece;  // this piece stays unwritten
    WrittenSums others(std::ssize(text));
    others.add(0, bytes_of(text).first(last));
    EXPECT_THROW(combined("file", std::ssize(text), 0, others.shares()), Error);
    shares.push_back(shares.front());
    EXPECT_THROW(combined("file", std::ssize(text), 0, shares), Error);
  }
}

TEST(FileSums, EveryReadRangeIsVerified) {
  const TemporaryFolder folder;
  std::string text = random_text(200'000);
  const FileSums sums = sums_of(text);
  const auto path = folder.write("file", text);
  const auto read = [&](std::int64_t begin, std::int64_t end) {
    std::string out(static_cast<std::size_t>(end - begin), '\0');
    read_checked(open_file(path, 0, "opened"), path, &sums, out.data(), out.size(), begin);
    return out;
  };
  const std::vector<std::int64_t> borders = {0, 1, 65'535, 65'536, 65'537, 131'072, 150'000, 196'608, 199'999, 200'000};
  for (const std::int64_t begin : borders)
    for (const std::int64_t end : borders)
      if (begin <= end) {
        EXPECT_EQ(read(begin, end),
                  text.substr(static_cast<std::size_t>(begin), static_cast<std::size_t>(end - begin)));
      }
  text[140'000] = static_cast<char>(text[140'000] ^ 1);
  folder.write("file", text);
  EXPECT_NO_THROW(read(0, 131'072));
  EXPECT_INPUT_ERROR(read(131'072, 131'073), "bytes 131072 to 196607 are not those that were written");
  EXPECT_INPUT_ERROR(read(0, 200'000), "bytes 131072 to 196607");
}

TEST(FileSums, ALargeFileHasAtMostAQuarterOfAMillionChunks) {
  EXPECT_EQ(chunk_bytes_of(0), 1 << 16);
  EXPECT_EQ(chunk_bytes_of(std::int64_t{1} << 34), 1 << 16);
  EXPECT_EQ(chunk_bytes_of((std::int64_t{1} << 34) + 1), 1 << 17);
  EXPECT_EQ(chunk_bytes_of(std::int64_t{1} << 40), 1 << 22);
}

TEST(Manifest, RoundTrips) {
  const TemporaryFolder folder;
  const Manifest manifest{.files = {{"a", sums_of("")}, {"b", sums_of(random_text(100'000))}}};
  folder.write("manifest.json", to_json(manifest));
  EXPECT_EQ(read_manifest(folder.path()), manifest);
  EXPECT_EQ(read_manifest(folder.path() / "absent"), std::nullopt);
}

TEST(Manifest, AFlippedBitOrATruncationIsRefused) {
  const TemporaryFolder folder;
  const std::string good = to_json({.files = {{"a", sums_of(random_text(70'000))}}});
  for (std::size_t bit = 0; bit < 8 * good.size(); ++bit) {
    folder.write("manifest.json", flipped(good, bit));
    EXPECT_INPUT_ERROR(read_manifest(folder.path()), "manifest.json: ");
  }
  for (std::size_t bytes = 0; bytes < good.size(); ++bytes) {
    folder.write("manifest.json", good.substr(0, bytes));
    EXPECT_INPUT_ERROR(read_manifest(folder.path()), "manifest.json: ");
  }
}

TEST(Manifest, WrongSizesAreRefusedBeforeAnyAllocation) {
  const SavedFolder folder;
  const std::filesystem::path step = folder.step();
  const Manifest good = *read_manifest(step);
  const auto refused = [&](std::int64_t bytes, std::int64_t chunk_bytes, std::size_t sums, const char* text) {
    Manifest manifest = good;
    manifest.files["model.safetensors"] = {
        .bytes = bytes, .chunk_bytes = chunk_bytes, .crc32cs = std::vector<std::uint32_t>(sums)};
    folder.write("step-00000007/manifest.json", to_json(manifest));
    EXPECT_INPUT_ERROR(Checkpoint::open(step, test::read_small), text);
  };
  const std::int64_t huge = std::int64_t{1} << 62;
  refused(huge, huge, 1, "\"model.safetensors\": has 1 checksums for 4611686018427387904 bytes in chunks of");
  refused(huge, 65536, 1, "has 1 checksums");
  refused(100, 0, 1, "in chunks of 0");
  refused(100, 65536, 2, "has 2 checksums for 100 bytes");
  refused(100, 65536, 1, "bytes where manifest.json tells of 100; it was changed");
  Manifest other = good;
  other.files.erase("optimizer.safetensors");
  folder.write("step-00000007/manifest.json", to_json(other));
  EXPECT_INPUT_ERROR(Checkpoint::open(step, test::read_small), "optimizer.safetensors: is not listed in manifest.json");
}

/// Opens a checkpoint and reads all of it, as a resume by one rank does.
void read_all_of(const std::filesystem::path& step) {
  const Checkpoint checkpoint = Checkpoint::open(step, test::read_small);
  for (const NamedShape& parameter : checkpoint.model().parameters) {
    std::vector<float> values(static_cast<std::size_t>(elements_of(parameter.shape)));
    checkpoint.read_weight(parameter.name, 0, std::ssize(values), values.data());
    for (const std::string& state : test::adamw_states)
      checkpoint.read_state(parameter.name, state, 0, std::as_writable_bytes(std::span(values)));
  }
}

TEST(Manifest, AFlippedBitInAnyCheckpointFileIsReportedWithTheFile) {
  const SavedFolder folder;
  const std::filesystem::path step = folder.step();
  ASSERT_NO_THROW(read_all_of(step));
  std::mt19937 draw(1);
  for (const auto& entry : std::filesystem::directory_iterator(step)) {
    const std::string name = entry.path().filename().string();
    const std::string good = content_of(entry.path());
    for (int i = 0; i < 300; ++i) {
      folder.write("step-00000007/" + name, flipped(good, draw() % (8 * good.size())));
      EXPECT_INPUT_ERROR(read_all_of(step), name + ": ");
    }
    folder.write("step-00000007/" + name, good);
  }
  EXPECT_NO_THROW(read_all_of(step));
}

TEST(Manifest, OpeningAModelFolderVerifiesItToo) {
  const SavedFolder folder;
  std::string config = content_of(folder.step() / "config.json");
  config[config.find("10000")] = '2';
  folder.write("step-00000007/config.json", config);
  EXPECT_INPUT_ERROR(open_model(folder.step(), test::read_small, {}), "config.json: bytes 0 to ");
}

TEST(Manifest, AnOldCheckpointWithoutAManifestIsReadWithAWarning) {
  const SavedFolder folder;
  const std::filesystem::path step = folder.step();
  std::filesystem::remove(step / "manifest.json");
  EXPECT_INPUT_ERROR(Checkpoint::open(step, test::read_small), "manifest.json: no such file");
  std::string trainer = content_of(step / "trainer.json");
  trainer[trainer.find(": 2") + 2] = '1';
  folder.write("step-00000007/trainer.json", trainer);
  std::vector<std::string> warnings;
  const Checkpoint old = Checkpoint::open(step, test::read_small, test::append_to(warnings));
  EXPECT_EQ(old.state().step, 7);
  ASSERT_EQ(warnings.size(), 1u);
  test::expect_parts(warnings[0], {"cannot be verified"});
}

}  // namespace
}  // namespace fsdp::checkpoint
