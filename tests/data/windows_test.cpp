// SPDX-License-Identifier: Apache-2.0
#include <tessera/trainer/data/windows.hpp>

#include <gtest/gtest.h>

#include <array>
#include <numeric>

#include "support/temporary_folder.hpp"

namespace fsdp::data {
namespace {

using test::TemporaryFolder;

class WindowsTest : public ::testing::Test {
 protected:
  Corpus corpus(const std::string& text) {
    const std::vector<std::filesystem::path> paths = {folder_.write("text", text)};
    return Corpus(paths);
  }
  TemporaryFolder folder_;
};

TEST(Documents, BeginWithTheWindowAndAfterEverySeparator) {
  const auto lengths = [](const std::string& window, std::vector<std::int64_t> before = {0}) {
    const std::vector<std::int32_t> tokens(window.begin(), window.end());
    append_documents(tokens, ';', before);
    return before;
  };
  using Lengths = std::vector<std::int64_t>;
  EXPECT_EQ(lengths("abcd"), (Lengths{0, 4}));
  EXPECT_EQ(lengths("ab;c"), (Lengths{0, 3, 4}));
  EXPECT_EQ(lengths(";a;;b"), (Lengths{0, 1, 3, 4, 5}));
  EXPECT_EQ(lengths("abc;"), (Lengths{0, 4}));  // nothing follows in this window
  EXPECT_EQ(lengths("a;b", {0, 2, 7}), (Lengths{0, 2, 7, 9, 10}));
}

TEST_F(WindowsTest, AreConsecutiveAndEachTokenHasItsNext) {
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

TEST_F(WindowsTest, TheGoldenTextHasSix) {
  const std::vector<std::filesystem::path> paths = {test::golden("llama-gqa") / "text.bin"};
  const Corpus text(paths);
  EXPECT_EQ(Windows(text, 17, 0).training(), 6);
}

TEST_F(WindowsTest, TheLastPartIsHeldOut) {
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

TEST_F(WindowsTest, WhatCannotWorkIsAnInputErrorWithBothNumbers) {
  const Corpus text = corpus("abcdefgh");
  EXPECT_INPUT_ERROR(Windows(text, 8, 0), "a sequence of 8 tokens and the next one do not fit into the 8 bytes");
  EXPECT_INPUT_ERROR(Windows(text, 0, 0), "at least 1");
  EXPECT_INPUT_ERROR(Windows(text, 4, 1.0), "below 1");
  EXPECT_INPUT_ERROR(Windows(text, 4, -0.1), "at least 0");
  EXPECT_INPUT_ERROR(Windows(text, 4, 0.5), "leave none to train on");
}

TEST_F(WindowsTest, ATokenOutsideTheVocabularyIsAnInputErrorHoweverLarge) {
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

}  // namespace
}  // namespace fsdp::data
