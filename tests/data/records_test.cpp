// SPDX-License-Identifier: Apache-2.0
#include <string>
#include <vector>

#include <gtest/gtest.h>

#include <tessera/trainer/data/conversations.hpp>
#include <tessera/trainer/data/corpus.hpp>
#include <tessera/trainer/data/tokenize.hpp>

#include "src/trainer/data/files/text_files.hpp"
#include "support/temporary_folder.hpp"

namespace fsdp::data::records_test {
namespace {

const std::filesystem::path tokenizer = TESSERA_TEST_DATA "/text/tokenizers/gpt2.json";
constexpr const char* mark = "\xEF\xBB\xBF";  // a byte order mark

struct Texts : test::TemporaryFolder {
  /// The documents of a file, separated by "|".
  std::string documents(const std::string& name, const std::string& content, std::int64_t shard_tokens = 1 << 20) {
    std::filesystem::remove_all(path() / "out");
    Tokenizing tokenizing({.inputs = {write(name, content)},
                           .tokenizer = tokenizer,
                           .end_token = "<|endoftext|>",
                           .shard_tokens = shard_tokens});
    tokenizing.write(path() / "out");
    const Corpus corpus(std::vector{path() / "out"});
    std::vector<text::TokenId> ids(static_cast<std::size_t>(corpus.size()));
    corpus.copy(0, ids);
    std::string text = tokenizing.tokenizer().decode(ids, false);
    for (std::size_t at = 0; (at = text.find("<|endoftext|>")) != text.npos;) text.replace(at, 13, "|");
    return text;
  }
};

TEST(Records, JsonFilesContainRecordsAsLinesOrAsOneArray) {
  Texts texts;
  const std::string lines = "{\"text\":\"a cat\"}\n{\"text\":\"a dog\"}\n",
                    array = "[{\"text\":\"a cat\"},{\"text\":\"a dog\"}]";
  for (const char* name : {"a.json", "a.jsonl", "a.ndjson", "a.JSON", "a.JsonL", "a.jsonlines", "a.jl"}) {
    SCOPED_TRACE(name);
    EXPECT_EQ(texts.documents(name, lines), "a cat|a dog|");
    EXPECT_EQ(texts.documents(name, mark + lines), "a cat|a dog|");
    EXPECT_EQ(texts.documents(name, array), "a cat|a dog|");
    EXPECT_EQ(texts.documents(name, mark + ("\n " + array) + "\n\n"), "a cat|a dog|");
    EXPECT_EQ(texts.documents(name, "[\n  {\n    \"text\": \"a cat\"\n  },\n  {\n    \"text\": \"a dog\"\n  }\n]\n"),
              "a cat|a dog|");
    EXPECT_EQ(texts.documents(name, "{\"text\": \"one\"}"), "one|");
  }
  EXPECT_EQ(texts.documents("a.json", "A text, in spite of its name: []"), "A text, in spite of its name: []|");
  EXPECT_EQ(texts.documents("a.ipynb", array), array + "|");
}

TEST(Records, WarnsIfAFileNameMakesRecordsReadAsText) {
  const Texts texts;
  const auto record = texts.write("data/part-00000", "{\"text\": \"a\"}\n{\"text\": \"b\"}\n");
  texts.write("data/a.jsonl", "{\"text\": \"a\"}\n");
  texts.write("data/b.txt", "{a}\n");
  const auto warnings = [](const std::filesystem::path& path) { return text_files(std::span(&path, 1)).warnings; };
  EXPECT_EQ(warnings(texts.path() / "data"),
            std::vector{"data: " + record.string() +
                        " begins with a record of JSON, and is read as text, by its name; rename it to "
                        ".jsonl to read the texts of its records"});
  EXPECT_EQ(warnings(texts.path() / "data/a.jsonl"), std::vector<std::string>{});
  EXPECT_EQ(warnings(texts.path() / "data/b.txt"), std::vector<std::string>{});
}

TEST(Records, BracketsAndQuotesInsideStringsDoNotEndARecord) {
  Texts texts;
  EXPECT_EQ(texts.documents("a.json", R"([{"text": "]},[{ \" \\", "more": [[1, {}], "a\\"]} , {"text": ","}])"),
            "]},[{ \" \\|,|");
}

TEST(Records, AnArrayReadInChunksGivesTheSameDocumentsAsLines) {
  Texts texts;
  std::string lines, array = "[";
  for (int i = 0; i < 300; ++i) {
    const std::string record = "{\"text\": \"" + std::to_string(i) +
                               std::string(static_cast<std::size_t>(i % 7 == 0 ? 20000 : 900), 'x') + "\"}";
    lines += record + "\n";
    array += (i > 0 ? " ,\n " : "") + record;
  }
  lines += "{\"text\": \"" + std::string(1'300'000, 'y') + "\"}\n";  // longer than a chunk
  array += ",{\"text\": \"" + std::string(1'300'000, 'y') + "\"}" + std::string(1'200'000, ' ') + "]" +
           std::string(1'200'000, '\n');
  EXPECT_EQ(texts.documents("a.json", array, 40'000), texts.documents("b.jsonl", lines));
}

TEST(Records, TokenizingAnArrayResumesAfterAnInterruption) {
  Texts texts;
  std::string array = "[";
  for (int i = 0; i < 9000; ++i)
    array += (i > 0 ? "," : "") + ("{\"text\": \"" + std::to_string(i) + std::string(400, 'x') + "\"}");
  array += "]";
  const std::string whole = texts.documents("a.json", array);
  const TokenizeRequest request{.inputs = {texts.path() / "a.json"},
                                .tokenizer = tokenizer,
                                .end_token = "<|endoftext|>",
                                .shard_tokens = 90'000,
                                .threads = 1};
  struct Interrupted {};
  EXPECT_THROW(Tokenizing(request).write(texts.path() / "cut", [](const TokenizeProgress&) { throw Interrupted(); }),
               Interrupted);
  const Tokenized rest = Tokenizing(request).write(texts.path() / "cut");
  EXPECT_GT(rest.resumed_at_bytes, 0);
  EXPECT_EQ(rest.total.documents, 9000);
  const Corpus one(std::vector{texts.path() / "cut"}), all(std::vector{texts.path() / "out"});
  std::vector<std::uint32_t> a(static_cast<std::size_t>(one.size())), b(static_cast<std::size_t>(all.size()));
  one.copy(0, a);
  all.copy(0, b);
  EXPECT_EQ(a, b);
}

TEST(Records, InvalidRecordsAreReportedWithTheirPosition) {
  Texts texts;
  const auto read = [&](const std::string& content, const std::string& name = "a.json") {
    return texts.documents(name, content);
  };
  EXPECT_INPUT_ERROR(read(R"([{"text": "a"}, {"text": null}])"), "a.json record 2: \"text\" is null; give it a text");
  EXPECT_INPUT_ERROR(read("{\"text\": null}\n", "a.jsonl"), "a.jsonl line 1: \"text\" is null");
  EXPECT_INPUT_ERROR(read(R"([{"text": "a"}, "b"])"), "a.json record 2: is not a JSON object");
  EXPECT_INPUT_ERROR(read(R"([{"body": "a"}])"), "a.json record 1: has no \"text\"; name the field");
  EXPECT_INPUT_ERROR(read(R"([{"text": "a"}, {"text": "b")"), "a.json ends within record 2");
  EXPECT_INPUT_ERROR(read(R"([{"text": "a"})"), "a.json ends within record 1");
  EXPECT_INPUT_ERROR(read(R"([{"text": "a"},])"), "record 2: nothing stands where a record should be");
  EXPECT_INPUT_ERROR(read(R"([{"text": "a"} {"text": "b"}])"), "record 1: not valid JSON");
  EXPECT_INPUT_ERROR(read("[{\"text\": \"a\"}]\n[{\"text\": \"b\"}]\n"), "more stands behind the array of 1 records");
  EXPECT_INPUT_ERROR(read("[]"), "the texts hold no token");
  for (const char* name : {"a.json", "a.jsonl"})
    EXPECT_INPUT_ERROR(read("{\n  \"text\": \"a\"\n}\n", name), "is a JSON object over several lines, and records are");
  EXPECT_INPUT_ERROR(read("{\"data\": [{\"text\": \"a\"}]}"), "a.json line 1: has no \"text\"");
}

TEST(Records, WithoutATokenizerAreRefusedUnlessBytesAreRequested) {
  const test::TemporaryFolder folder;
  for (const char* content : {"{\"text\":\"a\"}\n", "[{\"text\":\"a\"}]", "{\n\"text\":\"a\"}\n"}) {
    const auto path = folder.write("a.json", content);
    EXPECT_INPUT_ERROR(Corpus(std::vector{path}), "a.json holds records of JSON, whose texts a tokenizer reads");
    EXPECT_EQ(Corpus(std::vector{path}, TokenFormat::bytes).size(), std::ssize(std::string_view(content)));
  }
}

TEST(Records, ConversationsMayBeAnArray) {
  const test::TemporaryFolder folder;
  const std::string one = R"({"messages": [{"role": "user", "content": "a"}, {"role": "assistant", "content": "b"}]})";
  const auto made = [&](const std::string& name, const std::string& content) {
    ConversationTexts(std::vector{folder.write(name, content)}, tokenizer, "chatml").write(folder.path() / "made");
    return Conversations(folder.path() / "made");
  };
  const Conversations lines = made("a.jsonl", one + "\n" + one + "\n"),
                      array = made("b.json", "[" + one + ",\n" + one + "]");
  EXPECT_EQ(lines.digest(), array.digest());
  EXPECT_EQ(lines.place_of(1), (folder.path() / "a.jsonl line 2").string());
  EXPECT_EQ(array.place_of(1), (folder.path() / "b.json record 2").string());
  EXPECT_INPUT_ERROR(made("c.json", "[" + one + ", {}]"), "c.json record 2: has neither \"messages\"");
  EXPECT_INPUT_ERROR(made("d.json", "{\n\"messages\": []}"), "is a JSON object over several lines");
  EXPECT_INPUT_ERROR(made("e.json", "\"text\""), "holds no records: it begins with neither { nor [");
  EXPECT_INPUT_ERROR(made("f.jsonl.gz", "\x1f\x8b\x08"), "is compressed by gzip, and --data-format chat reads");
}

}  // namespace
}  // namespace fsdp::data::records_test
