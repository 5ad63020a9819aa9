// SPDX-License-Identifier: Apache-2.0
#include <span>
#include <string>
#include <utility>
#include <vector>

#include <gtest/gtest.h>

#include <tessera/text/tokenizer.hpp>
#include <tessera/trainer/data/corpus.hpp>
#include <tessera/trainer/data/text_source.hpp>
#include <tessera/trainer/data/tokenize.hpp>

#include "support/temporary_folder.hpp"

namespace fsdp::data::encodings_test {
namespace {

using namespace std::string_literals;

const std::filesystem::path tokenizer = TESSERA_TEST_DATA "/text/tokenizers/gpt2.json";

struct Texts : test::TemporaryFolder {
  Tokenized tokenized(const std::filesystem::path& input) const {
    std::filesystem::remove_all(path() / "out");
    return Tokenizing({.inputs = {input}, .tokenizer = tokenizer, .end_token = "none"}).write(path() / "out");
  }
};

const std::string gbk = "\xd1\xb5\xc1\xb7\xca\xfd\xbe\xdd";

TEST(Encodings, RefusesAFileWithMoreThanOnePercentInvalidUtf8) {
  const Texts texts;
  EXPECT_INPUT_ERROR(texts.tokenized(texts.write("a.txt", "abc" + gbk + "\n")),
                     "a.txt is not UTF-8: 6 of its 12 bytes are not, the first at byte 5; convert it");
  EXPECT_EQ(texts.tokenized(texts.write("a.txt", std::string(99, 'x') + "\xff")).replaced_bytes, 1);
  EXPECT_INPUT_ERROR(texts.tokenized(texts.write("a.txt", std::string(98, 'x') + "\xff")), "1 of its 99 bytes");
  const std::string late = std::string(3'000'000, 'x') + "\n" + std::string(100'000, '\xfe');  // invalid at the end
  EXPECT_INPUT_ERROR(texts.tokenized(texts.write("a.txt", late)),
                     "100000 of its 3100001 bytes are not, the first at "
                     "byte 3000001");
  EXPECT_FALSE(std::filesystem::exists(texts.path() / "out/tokens.json"));
  const std::string head = std::string(200, '\xfe') + std::string(100'000, 'x');  // few invalid bytes, at the beginning
  EXPECT_EQ(texts.tokenized(texts.write("a.txt", head)).replaced_bytes, 200);
}

TEST(Encodings, CountsOfInvalidBytesSurviveAnInterruption) {
  const Texts texts;
  std::string text;
  for (int i = 0; i < 60'000; ++i) text += i % 100 == 0 ? "line \xff of words\n" : "a line of more words\n";
  text += text + text;
  texts.write("in/a.txt", text);
  texts.write("in/b.bin", "x\0y"s);
  const TokenizeRequest request{.inputs = {texts.path() / "in"},
                                .tokenizer = tokenizer,
                                .end_token = "none",
                                .shard_tokens = 50'000,
                                .threads = 1};
  struct Interrupted {};
  const auto interrupt = [](const TokenizeProgress&) { throw Interrupted(); };
  EXPECT_THROW(Tokenizing(request).write(texts.path() / "cut", interrupt), Interrupted);
  EXPECT_EQ(Tokenizing(request).write(texts.path() / "cut").replaced_bytes, 1800);
  const Tokenized again = Tokenizing(request).write(texts.path() / "cut");
  EXPECT_TRUE(again.already_complete);
  EXPECT_EQ(again.replaced_bytes, 1800);
  EXPECT_EQ(again.left_out.binary(), 1);
  const TextSource source(std::vector{texts.path() / "cut"}, 64, 0, 60'000, std::nullopt);
  EXPECT_EQ(source.skipped_binary(), 1);
  test::expect_parts(source.text(),
                     {"left out: not text, when the tokens were made 1, 1800 bytes that are not Unicode text were "
                      "read as U+FFFD"});
}

TEST(Encodings, LoneSurrogateEscapesCountAsInvalidUtf8) {
  const Texts texts;
  const text::Tokenizer gpt2 = text::Tokenizer::read(tokenizer);
  const std::string line = "{\"text\":\"a fine line of words\"}\n";
  std::string good;
  for (int i = 0; i < 20; ++i) good += line;
  const auto last_text = [&](const std::string& more) {  // decodes the last document
    const Tokenized made = texts.tokenized(texts.write("a.jsonl", good + more));
    EXPECT_EQ(made.total.documents, 21);
    const Corpus corpus(std::vector{texts.path() / "out"});
    std::vector<std::uint32_t> ids(static_cast<std::size_t>(corpus.size()));
    corpus.copy(0, ids);
    return std::pair(gpt2.decode(std::span(ids).subspan(20 * gpt2.encode("a fine line of words").size())),
                     made.replaced_bytes);
  };
  using Read = std::pair<std::string, std::int64_t>;
  EXPECT_EQ(last_text(R"({"text":"ok \udcb2 end"})"), (Read{"ok \uFFFD end", 1}));
  EXPECT_EQ(last_text(R"({"text":"\uD83D\u0041\ud83d\ude00\\udcb2"})"), (Read{"\uFFFDA\U0001F600\\udcb2", 1}));
  EXPECT_EQ(last_text("{\"text\":\"ok \xff end\"}"), (Read{"ok \uFFFD end", 1}));
  EXPECT_EQ(last_text(R"({"\udcb2":"\udcb2","\udcb3":["\udcb2"],"a":{"text":"\udcb2"},"text":"fine"})"),
            (Read{"fine", 0}));
  EXPECT_EQ(last_text("{\"\xff\":1,\"\xfe\":2,\"text\":\"fine\"}"), (Read{"fine", 0}));
  EXPECT_INPUT_ERROR(last_text(R"({"text":"\udcb2","a":1,"a":2})"), "line 21: the key \"a\" stands twice");
  EXPECT_INPUT_ERROR(last_text("{\"text\":\"" + std::string(9, '\xff') + "\"}"),
                     "a.jsonl: 9 of its 660 bytes up to line 21 are not Unicode text: escapes of half a character");
}

TEST(Encodings, Utf16AndUtf32AreReportedByTheirByteOrderMark) {
  const Texts texts;
  for (const auto& [mark, name] : {std::pair{"\xff\xfe"s, "UTF-16"},
                                   {"\xfe\xff"s, "UTF-16"},
                                   {"\xff\xfe\0\0"s, "UTF-32"},
                                   {"\0\0\xfe\xff"s, "UTF-32"}}) {
    for (const std::string& content : {"h\0i\0"s, "\x2d\x4e\x87\x65"s}) {  // the second has no NUL
      const auto path = texts.write("wide.txt", mark + content);
      const std::string said = "wide.txt begins with the byte order mark of "s + name;
      EXPECT_INPUT_ERROR(texts.tokenized(path), said);
      EXPECT_INPUT_ERROR(texts.tokenized(texts.path()), said);
      EXPECT_INPUT_ERROR(Corpus(std::vector{path}), said);
    }
  }
}

TEST(Encodings, ReportsANulByteInATextFile) {
  const Texts texts;
  for (const char* name : {"a.txt", "a.jsonl", "a.JL"}) {
    const auto path = texts.write(name, "{\"text\": \"a\0b\"}\n"s);
    const std::string said =
        path.string() + " has a NUL at byte 11, and is text by its name, which has none; mend it, ";
    EXPECT_INPUT_ERROR(texts.tokenized(path), said);
    EXPECT_INPUT_ERROR(Corpus(std::vector{path}), said);
  }
  EXPECT_INPUT_ERROR(texts.tokenized(texts.write("some.txt", "a\0b\0c\0\x19\x20"s)), "is UTF-16 without a byte order");
  std::filesystem::remove(texts.path() / "some.txt");
  const auto low = texts.write("low.txt", "h\0i\0"s), high = texts.write("high.txt", "\0h\0i"s);
  EXPECT_INPUT_ERROR(texts.tokenized(low),
                     "low.txt is UTF-16 without a byte order mark: every second byte is 0, and "
                     "text is read as UTF-8; convert it: iconv -f UTF-16LE -t UTF-8");
  EXPECT_INPUT_ERROR(texts.tokenized(high), "iconv -f UTF-16BE -t UTF-8");
  const std::string folder = texts.path().string();
  EXPECT_INPUT_ERROR(texts.tokenized(texts.path()),
                     "there is no text in " + folder + " (left out: texts with a NUL 5 (" + folder + "/a.JL, ...))");
}

TEST(Encodings, TheUtf8ByteOrderMarkIsNotPartOfTheText) {
  const Texts texts;
  const auto plain = texts.write("a.txt", "hello"), marked = texts.write("b.txt", "\xEF\xBB\xBFhello");
  EXPECT_EQ(texts.tokenized(marked).total.tokens, texts.tokenized(plain).total.tokens);
  const Corpus corpus(std::vector{marked, plain});
  std::vector<std::uint32_t> bytes(10);
  corpus.copy(0, bytes);
  EXPECT_EQ(std::string(bytes.begin(), bytes.end()), "hellohello");
  EXPECT_EQ(corpus.place_of(1).byte, 4);
}

}  // namespace
}  // namespace fsdp::data::encodings_test
