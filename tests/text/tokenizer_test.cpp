// SPDX-License-Identifier: Apache-2.0
#include <tessera/text/tokenizer.hpp>

#include <cstring>
#include <string>
#include <thread>
#include <vector>

#include <gtest/gtest.h>

#include "support/temporary_folder.hpp"
#include "text/hashes.hpp"
#include "text/sample_strings.hpp"

namespace fsdp::text {
namespace {

std::filesystem::path folder() { return std::filesystem::path(TESSERA_TEST_DATA) / "text" / "tokenizers"; }
Tokenizer read(const std::string& name) { return Tokenizer::read(folder() / (name + ".json")); }

std::uint32_t hash_of(const std::vector<TokenId>& ids) {
  return test::hash_of({reinterpret_cast<const char*>(ids.data()), ids.size() * sizeof(TokenId)});
}

class Vectors : public ::testing::TestWithParam<std::string> {};

TEST_P(Vectors, IdsAndTextMatchTheTokenizersPackage) {
  const Tokenizer tokenizer = read(GetParam());
  const std::string hashes = test::content_of(folder() / (GetParam() + ".hashes"));
  ASSERT_EQ(hashes.size(), 6000u * 8);
  for (std::uint64_t i = 0; i < hashes.size() / 8; ++i) {
    std::uint32_t of_ids = 0, of_text = 0;
    std::memcpy(&of_ids, hashes.data() + 8 * i, 4);
    std::memcpy(&of_text, hashes.data() + 8 * i + 4, 4);
    const std::vector<TokenId> ids = tokenizer.encode(test::sample_string(i), i % 2 == 0);
    const std::string text = tokenizer.decode(ids, i % 3 == 0);
    ASSERT_EQ(hash_of(ids), of_ids) << "string " << i;
    ASSERT_EQ(test::hash_of(text), of_text) << "string " << i;
    StreamDecoder stream(tokenizer, i % 3 == 0);
    std::string streamed;
    for (const TokenId id : ids) streamed += stream.push(id);
    streamed += stream.finish();
    ASSERT_EQ(streamed, text) << "string " << i;
  }
}

INSTANTIATE_TEST_SUITE_P(Tokenizer, Vectors,
                         ::testing::Values("gpt2", "llama3", "qwen", "llama2", "mistral", "gemma", "metaspace",
                                           "smollm", "deepseek", "gpt4o", "odd"),
                         [](const auto& kind) { return kind.param; });

TEST(Tokenizer, IsReadFromAFolder) {
  const test::TemporaryFolder model;
  std::filesystem::copy(folder() / "gpt2.json", model.path() / "tokenizer.json");
  EXPECT_EQ(Tokenizer::read(model.path()).encode("the model"), read("gpt2").encode("the model"));
}

TEST(Tokenizer, FindsTokensByName) {
  const Tokenizer tokenizer = read("llama3");
  EXPECT_EQ(tokenizer.id_of("<|begin_of_text|>"), 0u);
  EXPECT_EQ(tokenizer.id_of("not a token"), std::nullopt);
  EXPECT_EQ(tokenizer.name_of(0), "<|begin_of_text|>");
  EXPECT_EQ(tokenizer.name_of(1'000'000), std::nullopt);
  EXPECT_TRUE(tokenizer.is_special(0));
  EXPECT_FALSE(tokenizer.is_special(*tokenizer.id_of("a")));
  for (TokenId id = 0; id < tokenizer.vocabulary_size(); ++id) EXPECT_TRUE(tokenizer.name_of(id)) << id;
}

TEST(Tokenizer, AddsItsTemplateToATextIfRequested) {
  const Tokenizer tokenizer = read("llama3");
  std::vector<TokenId> with = tokenizer.encode("text");
  EXPECT_EQ(with.front(), 0u);
  with.erase(with.begin());
  EXPECT_EQ(with, tokenizer.encode("text", false));
  std::vector<TokenId> ids = {7};
  tokenizer.append_encoded("text", false, ids);
  with.insert(with.begin(), 7);
  EXPECT_EQ(ids, with);
}

TEST(Tokenizer, AnEmptyTextEncodesToTheTemplateOnly) {
  EXPECT_EQ(read("llama3").encode(""), std::vector<TokenId>{0});
  EXPECT_TRUE(read("llama3").encode("", false).empty());
  EXPECT_EQ(read("llama3").decode({}), "");
}

TEST(Tokenizer, DecodingSkipsInvalidIds) {
  const Tokenizer tokenizer = read("gpt2");
  std::vector<TokenId> ids = tokenizer.encode("a text");
  ids.insert(ids.begin() + 1, 4'000'000'000);
  EXPECT_EQ(tokenizer.decode(ids), "a text");
}

TEST(Tokenizer, InvalidUtf8BecomesReplacementCharacters) {
  const Tokenizer tokenizer = read("gpt2");
  EXPECT_EQ(tokenizer.encode("a\xFF\xE4\xB8z"), tokenizer.encode("a\uFFFD\uFFFDz"));
}

TEST(Tokenizer, EncodingDoesNotDependOnTheNumberOfThreads) {
  const Tokenizer tokenizer = read("deepseek");
  std::vector<std::vector<TokenId>> alone;
  for (std::uint64_t i = 0; i < 500; ++i) alone.push_back(tokenizer.encode(test::sample_string(i)));
  std::vector<int> wrong(4);
  std::vector<std::thread> threads;
  for (std::size_t t = 0; t < wrong.size(); ++t)
    threads.emplace_back([&, t] {
      for (std::uint64_t i = 0; i < 500; ++i) {
        const std::uint64_t index = (i + 131 * t) % 500;
        wrong[t] += tokenizer.encode(test::sample_string(index)) != alone[index];
      }
    });
  for (std::thread& thread : threads) thread.join();
  EXPECT_EQ(wrong, std::vector<int>(4));
}

TEST(Tokenizer, EncodesAnExtremelyLongWord) {
  for (const char* const name : {"gpt2", "llama2"}) {
    const Tokenizer tokenizer = read(name);
    const std::string word(1'000'000, 'x');
    EXPECT_EQ(tokenizer.decode(tokenizer.encode(word)), word) << name;
  }
}

TEST(StreamDecoder, BuffersACharacterUntilAllItsBytesArrive) {
  const Tokenizer tokenizer = read("gpt2");
  const std::vector<TokenId> ids = tokenizer.encode("\U0001F980");  // a crab: four bytes, of which two may be merged
  ASSERT_GE(ids.size(), 3u);
  StreamDecoder stream(tokenizer);
  for (std::size_t i = 0; i + 1 < ids.size(); ++i) EXPECT_EQ(stream.push(ids[i]), "");
  EXPECT_EQ(stream.push(ids.back()), "\U0001F980");
  EXPECT_EQ(stream.push(ids[0]), "");
  EXPECT_EQ(stream.finish(), "\uFFFD");
  EXPECT_EQ(stream.finish(), "");
}

TEST(StreamDecoder, BuffersSentencePieceByteTokens) {
  const Tokenizer tokenizer = read("llama2");
  StreamDecoder stream(tokenizer);
  std::string text;
  for (const TokenId id : tokenizer.encode("one \U0001F980 two")) text += stream.push(id);
  EXPECT_EQ(text, "one \U0001F980 two");
  for (int i = 0; i < 200; ++i) text += stream.push(*tokenizer.id_of("<0xF0>"));  // never completes a character
  text += stream.finish();
  EXPECT_EQ(text.size(), std::string("one \U0001F980 two").size() + 3 * 200);
}

TEST(StreamDecoder, MatchesDecodeForAnyIds) {
  for (const char* const name : {"gpt2", "qwen", "metaspace", "odd"}) {
    const Tokenizer tokenizer = read(name);
    test::Draw draw(7);
    for (int round = 0; round < 300; ++round) {
      std::vector<TokenId> ids(1 + draw.below(20));
      for (TokenId& id : ids)
        id = static_cast<TokenId>(draw.below(static_cast<std::uint64_t>(tokenizer.vocabulary_size())));
      StreamDecoder stream(tokenizer);
      std::string text;
      for (const TokenId id : ids) text += stream.push(id);
      EXPECT_EQ(text + stream.finish(), tokenizer.decode(ids)) << name;
    }
  }
}

}  // namespace
}  // namespace fsdp::text
