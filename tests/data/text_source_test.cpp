// SPDX-License-Identifier: Apache-2.0
#include <fsdp/data/text_source.hpp>

#include <array>
#include <vector>

#include <gtest/gtest.h>

#include <fsdp/device/cpu.hpp>
#include <fsdp/device/host_copy.hpp>

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
  EXPECT_EQ(source.text(), "13 B in 1 file (0 binary ones skipped)");

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

}  // namespace
}  // namespace fsdp::data
