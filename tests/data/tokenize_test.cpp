// SPDX-License-Identifier: Apache-2.0
#include <tessera/trainer/data/tokenize.hpp>

#include <algorithm>
#include <string>
#include <vector>

#include <gtest/gtest.h>

#include <tessera/fsdp/checkpoint/directory_lock.hpp>
#include <tessera/trainer/data/corpus.hpp>

#include "src/trainer/data/files/text_files.hpp"
#include "support/temporary_folder.hpp"
#include "text/sample_strings.hpp"

namespace fsdp::data {
namespace {

using text::TokenId;

std::filesystem::path tokenizer_of(const std::string& name) {
  return std::filesystem::path(TESSERA_TEST_DATA) / "text" / "tokenizers" / (name + ".json");
}

std::vector<TokenId> tokens_in(const std::filesystem::path& folder) {
  const std::filesystem::path paths[] = {folder};
  const Corpus corpus(paths);
  std::vector<TokenId> tokens(static_cast<std::size_t>(corpus.size()));
  corpus.copy(0, tokens);
  return tokens;
}

/// A text of many kinds of lines with at least the given number of bytes.
std::string long_text(std::size_t bytes) {
  std::string text;
  for (std::uint64_t i = 0; text.size() < bytes; ++i) {
    const std::string sample = test::sample_string(i);
    text += std::all_of(sample.begin(), sample.end(), [](char c) { return c != '\0'; }) ? sample : "nul";
    text += i % 3 == 0 ? "\n" : i % 7 == 0 ? "\n\n    " : " ";
  }
  return text;
}

class Kinds : public ::testing::TestWithParam<std::string> {};

TEST_P(Kinds, ALongTextTokenizedInChunksMatchesTheWholeText) {
  const test::TemporaryFolder folder;
  const std::string text = long_text(1'400'000);
  folder.write("a.txt", text);
  Tokenizing tokenizing(
      {.inputs = {folder.path() / "a.txt"}, .tokenizer = tokenizer_of(GetParam()), .end_token = "none"});
  const Tokenized result = tokenizing.write(folder.path() / "out");

  const std::vector<TokenId> whole = tokenizing.tokenizer().encode(text);
  EXPECT_EQ(tokens_in(folder.path() / "out"), whole);
  const Corpus corpus(std::vector{folder.path() / "out"});
  test::Draw draw(3);
  for (int i = 0; i < 200; ++i) {  // windows of any length, cut anywhere
    const std::size_t begin = draw.below(whole.size()),
                      count = draw.below(std::min<std::size_t>(whole.size() - begin, 3000));
    std::vector<TokenId> window(count);
    corpus.copy(static_cast<std::int64_t>(begin), window);
    ASSERT_TRUE(std::equal(window.begin(), window.end(), whole.begin() + static_cast<std::ptrdiff_t>(begin)));
  }
  EXPECT_EQ(result.total.documents, 1);
  EXPECT_EQ(result.total.bytes, std::ssize(text));
}

TEST_P(Kinds, TextsHaveSafePlacesToCut) {
  const text::Tokenizer tokenizer = text::Tokenizer::read(tokenizer_of(GetParam()));
  const std::string text = "A first line of words\nand another, of 3 words.\nThe third one\n    ends here\n";
  int seams = 0;
  for (std::size_t at = text.find('\n'); at + 1 < text.size(); at = text.find('\n', at + 1))
    seams += is_cut_point(tokenizer, text, at + 1);
  EXPECT_GE(seams, 2);
}

INSTANTIATE_TEST_SUITE_P(Tokenize, Kinds, ::testing::Values("gpt2", "qwen", "llama2", "mistral", "smollm", "metaspace"),
                         [](const auto& kind) { return kind.param; });

TEST(Tokenize, LinesOfJsonAreDocumentsWithAnEndToken) {
  const test::TemporaryFolder folder;
  folder.write("a.jsonl", "{\"text\": \"one \\u00e9\", \"n\": 1}\n\n{\"text\": \"\"}\n{\"text\": \"two\"}");
  folder.write("b.txt", "three");
  const TokenizeRequest request{.inputs = {folder.path() / "a.jsonl", folder.path() / "b.txt"},
                                .tokenizer = tokenizer_of("gpt2"),
                                .end_token = "<|endoftext|>"};
  Tokenizing tokenizing(request);
  const Tokenized result = tokenizing.write(folder.path() / "out");

  const text::Tokenizer& tokenizer = tokenizing.tokenizer();
  EXPECT_EQ(tokens_in(folder.path() / "out"),
            tokenizer.encode("one \u00e9<|endoftext|>two<|endoftext|>three<|endoftext|>"));
  EXPECT_EQ(result.total.documents, 3);
}

TEST(Tokenize, DocumentsAreWrappedInTheTokenizersTemplate) {
  const test::TemporaryFolder folder;
  folder.write("a.jsonl", "{\"text\": \"one\"}\n{\"text\": \"two\"}\n");
  Tokenizing tokenizing(
      {.inputs = {folder.path() / "a.jsonl"}, .tokenizer = tokenizer_of("llama3"), .end_token = "none"});
  tokenizing.write(folder.path() / "out");

  std::vector<TokenId> wanted = tokenizing.tokenizer().encode("one");
  tokenizing.tokenizer().append_encoded("two", true, wanted);
  EXPECT_EQ(tokens_in(folder.path() / "out"), wanted);
}

TEST(Tokenize, TokensDoNotDependOnThreadsOrFileLength) {
  const test::TemporaryFolder folder;
  std::string lines;
  for (int i = 0; i < 20000; ++i)
    lines += "{\"text\": \"line " + std::to_string(i) + std::string(i % 200, 'x') + "\"}\n";
  folder.write("a.jsonl", lines);
  folder.write("b.txt", long_text(1'500'000));
  TokenizeRequest request{.inputs = {folder.path() / "a.jsonl", folder.path() / "b.txt"},
                          .tokenizer = tokenizer_of("qwen"),
                          .end_token = "<|endoftext|>",
                          .threads = 1};
  Tokenizing(request).write(folder.path() / "one");
  request.threads = 3;
  request.shard_tokens = 100'001;
  const Tokenized result = Tokenizing(request).write(folder.path() / "three");
  EXPECT_GT(result.files, 5);
  EXPECT_EQ(tokens_in(folder.path() / "one"), tokens_in(folder.path() / "three"));
}

TEST(Tokenize, ResumesAfterAnInterruption) {
  const test::TemporaryFolder folder;
  folder.write("a.txt", long_text(2'500'000));
  folder.write("b.txt", "the end");
  const TokenizeRequest request{.inputs = {folder.path() / "a.txt", folder.path() / "b.txt"},
                                .tokenizer = tokenizer_of("gpt2"),
                                .end_token = "<|endoftext|>",
                                .shard_tokens = 70'000,
                                .threads = 1};
  const Tokenized whole = Tokenizing(request).write(folder.path() / "whole");
  struct Interrupted {};
  for (int times = 0; times < 2; ++times) {
    const auto interrupt = [](const TokenizeProgress&) { throw Interrupted(); };
    EXPECT_THROW(Tokenizing(request).write(folder.path() / "cut", interrupt), Interrupted);
    const std::filesystem::path cut[] = {folder.path() / "cut"};
    EXPECT_INPUT_ERROR(Corpus{cut}, "tokenizing it did not end");
  }
  const Tokenized rest = Tokenizing(request).write(folder.path() / "cut");
  EXPECT_GT(rest.resumed_at_bytes, 0);
  EXPECT_LT(rest.resumed_at_bytes, rest.total.bytes);
  EXPECT_EQ(rest.total.documents, whole.total.documents);
  EXPECT_EQ(rest.total.tokens, whole.total.tokens);
  EXPECT_EQ(tokens_in(folder.path() / "cut"), tokens_in(folder.path() / "whole"));
  // Completely tokenized shards are usable before another run.
  const checkpoint::DirectoryLock other(folder.path() / "cut");
  EXPECT_TRUE(Tokenizing(request).write(folder.path() / "cut").already_complete);
}

TEST(Tokenize, ReportsUnreadableInputs) {
  const test::TemporaryFolder folder;
  const auto request_of = [&](const std::string& content, const std::string& end = "none") {
    folder.write("a.jsonl", content);
    return TokenizeRequest{.inputs = {folder.path() / "a.jsonl"}, .tokenizer = tokenizer_of("gpt2"), .end_token = end};
  };
  const auto write_all = [&](const std::string& content) {
    std::filesystem::remove_all(folder.path() / "out");
    Tokenizing(request_of(content)).write(folder.path() / "out");
  };
  EXPECT_INPUT_ERROR(write_all("{\"text\": \"a\"}\n{\"body\": \"b\"}\n"),
                     "a.jsonl line 2: has no \"text\"; name the field");
  EXPECT_INPUT_ERROR(write_all("{\"text\": 3}\n"), "line 1: \"text\" is not a text");
  EXPECT_INPUT_ERROR(write_all("{\"text\": \"a\"}\n\n{\"text\": \n"), "line 3: not valid JSON");
  EXPECT_INPUT_ERROR(write_all("[1]\n"), "record 1: is not a JSON object");
  EXPECT_INPUT_ERROR(write_all("{\"text\": \"\"}\n"), "the texts hold no token");
  EXPECT_INPUT_ERROR(Tokenizing(request_of("{}", "<no>")), "the end token \"<no>\" is none of ");
  EXPECT_INPUT_ERROR(Tokenizing(request_of("{}", "")), "name the token that ends a document by --end-token");
  folder.write("binary", std::string("a\0b", 3));
  EXPECT_INPUT_ERROR(
      Tokenizing({.inputs = {folder.path() / "binary"}, .tokenizer = tokenizer_of("gpt2"), .end_token = "none"}),
      "there is no text in ");
  EXPECT_INPUT_ERROR(
      Tokenizing({.inputs = {folder.path() / "a.jsonl"}, .tokenizer = folder.path(), .end_token = "none"}),
      "holds no tokenizer.json");
}

TEST(Tokenize, AFolderWithTokensOfOtherTextsIsNotOverwritten) {
  const test::TemporaryFolder folder;
  folder.write("a.txt", "one");
  const TokenizeRequest request{
      .inputs = {folder.path() / "a.txt"}, .tokenizer = tokenizer_of("gpt2"), .end_token = "none"};
  Tokenizing(request).write(folder.path() / "out");
  folder.write("a.txt", "two!");
  EXPECT_INPUT_ERROR(Tokenizing(request).write(folder.path() / "out"), "holds the tokens of other texts");
  folder.write("mine/x", "y");
  EXPECT_INPUT_ERROR(Tokenizing(request).write(folder.path() / "mine"), "is not empty and holds no tokens.json");
}

}  // namespace
}  // namespace fsdp::data
