// SPDX-License-Identifier: Apache-2.0
// Files that Tokenizer::parse refuses, and its error messages.
#include <string>

#include <gtest/gtest.h>

#include <tessera/text/tokenizer.hpp>

#include "support/temporary_folder.hpp"

namespace fsdp::text {
namespace {

constexpr const char* small_model = R"({"type":"BPE","vocab":{"a":0,"b":1,"ab":2},"merges":["a b"]})";

/// A file with a model and parts such as `"decoder":{...}`.
std::string file(const std::string& parts, const std::string& model = small_model) {
  return "{" + parts + (parts.empty() ? "" : ",") + R"("model":)" + model + "}";
}
std::string model(const std::string& vocabulary, const std::string& merges, const std::string& more = "") {
  return R"({"type":"BPE","vocab":{)" + vocabulary + R"(},"merges":[)" + merges + "]" + more + "}";
}
Tokenizer parse(const std::string& json) { return Tokenizer::parse(json, "t.json"); }
Tokenizer with(const std::string& parts) { return parse(file(parts)); }
Tokenizer of_model(const std::string& text) { return parse(file("", text)); }

std::string added(const std::string& id, const std::string& content, const std::string& normalized = "false") {
  return R"({"id":)" + id + R"(,"content":")" + content +
         R"(","single_word":false,"lstrip":false,"rstrip":false,"normalized":)" + normalized + R"(,"special":false})";
}

TEST(TokenizerFile, AFileWithOnlyAModelIsRead) {
  const Tokenizer tokenizer = parse(file(""));
  EXPECT_EQ(tokenizer.encode("abba"), (std::vector<TokenId>{2, 1, 0}));
  EXPECT_EQ(tokenizer.encode("xaxb"), (std::vector<TokenId>{2}));  // characters without a token are dropped
  EXPECT_EQ(tokenizer.decode(std::vector<TokenId>{2, 1}), "ab b");
  EXPECT_EQ(tokenizer.vocabulary_size(), 3);
}

TEST(TokenizerFile, TruncationAndPaddingAreIgnoredWithAWarning) {
  const std::string cut = R"("truncation":{"direction":"Right","max_length":1,"strategy":"LongestFirst","stride":0})";
  const std::string padded = R"("padding":{"strategy":{"Fixed":9},"pad_id":0,"pad_type_id":0,"pad_token":"a"})";
  const Tokenizer both = with(cut + "," + padded);
  EXPECT_EQ(both.encode("abba"), parse(file("")).encode("abba"));
  EXPECT_EQ(both.warnings(),
            std::vector<std::string>{"t.json: requests truncation to 1 tokens and padding, which is not applied"});
  EXPECT_EQ(with(padded).warnings(), std::vector<std::string>{"t.json: requests padding, which is not applied"});
  EXPECT_TRUE(with(R"("truncation":null,"padding":null)").warnings().empty());
}

TEST(TokenizerFile, WarnsAboutTheFaultySplitPatternOfOldMistralExports) {
  const test::TemporaryFolder folder;
  const auto warnings = [&](const std::string& expression, const std::string& config) {
    folder.write("config.json", config);
    folder.write("tokenizer.json",
                 file(R"("pre_tokenizer":{"type":"Sequence","pretokenizers":[{"type":"Split","pattern":{"Regex":")" +
                      expression + R"("},"behavior":"Isolated","invert":false},)" +
                      R"({"type":"ByteLevel","add_prefix_space":false,"use_regex":false}]})"));
    return Tokenizer::read(folder.path()).warnings();
  };
  const std::string old = R"({"model_type":"mistral","transformers_version":"4.50.0"})";
  const std::string wrong = R"([^\\r\\n\\p{L}\\p{N}]?\\p{L}+|\\p{N}{1,3}|\\s+)";
  const std::vector<std::string> told = warnings(wrong, old);
  ASSERT_EQ(told.size(), 1u);
  EXPECT_NE(told[0].find(R"(split by the expression [^\r\n\p{L}\p{N}]?\p{L}+|\p{N}{1,3}|\s+, which)"), told[0].npos);
  EXPECT_NE(told[0].find(R"(trained with [^\r\n\p{L}\p{N}]?[\p{Lu}\p{Lt}\p{Lm}\p{Lo}\p{M}]*[)"), told[0].npos);
  EXPECT_EQ(warnings(wrong, R"({"model_type":"mistral3"})").size(), 1u);
  EXPECT_TRUE(warnings(wrong, R"({"model_type":"mistral","transformers_version":"5.1.0"})").empty());
  EXPECT_TRUE(warnings(wrong, R"({"model_type":"llama","transformers_version":"4.50.0"})").empty());
  EXPECT_TRUE(warnings(wrong, "damaged").empty());
  const std::size_t right = told[0].find("trained with ") + 13;
  std::string escaped;
  for (const char c : told[0].substr(right, told[0].find(". Token ids") - right))
    escaped += c == '\\' ? "\\\\" : std::string(1, c);
  EXPECT_TRUE(warnings(escaped, old).empty());
}

TEST(TokenizerFile, MergesMayBeStringsOrPairs) {
  EXPECT_EQ(of_model(model(R"("a":0,"b":1,"ab":2)", R"(["a","b"])")).encode("ab"), std::vector<TokenId>{2});
  EXPECT_EQ(of_model(model(R"("a":0," ":1,"a ":2)", R"(["a"," "])")).encode("a "), std::vector<TokenId>{2});
}

TEST(TokenizerFile, RefusesFilesThatAreNotTokenizers) {
  const test::TemporaryFolder folder;
  EXPECT_INPUT_ERROR(parse("[1]"), "t.json: has no \"model\", so it is not a tokenizer.json");
  EXPECT_INPUT_ERROR(parse("{"), "t.json: not valid JSON");
  EXPECT_INPUT_ERROR(with(R"("model":1)"), "stands twice in one object");
  EXPECT_INPUT_ERROR(parse(R"({"model":3})"), "the model is not an object");
  EXPECT_INPUT_ERROR(parse(std::string(100, '[')), "nested deeper than 16 levels");
  EXPECT_THROW(Tokenizer::read(folder.path()), Error);
}

TEST(TokenizerFile, ReportsUnsupportedParts) {
  EXPECT_INPUT_ERROR(of_model(R"({"type":"Unigram","vocab":[]})"),
                     "the model \"Unigram\" is not supported; there is BPE");
  EXPECT_INPUT_ERROR(
      with(R"("normalizer":{"type":"Nmt"})"),
      "t.json: the normalizer \"Nmt\" is not supported; there are NFC, NFD, NFKC, NFKD, Prepend, Replace");
  EXPECT_INPUT_ERROR(with(R"("normalizer":{"type":"Sequence","normalizers":[{"type":"Lowercase"}]})"), "\"Lowercase\"");
  EXPECT_INPUT_ERROR(with(R"("pre_tokenizer":{"type":"BertPreTokenizer"})"),
                     "the pre-tokenizer \"BertPreTokenizer\" is not supported; there are Split, ByteLevel, Digits");
  EXPECT_INPUT_ERROR(with(R"("decoder":{"type":"WordPiece"})"),
                     "the decoder \"WordPiece\" is not supported; there are");
  EXPECT_INPUT_ERROR(with(R"("post_processor":{"type":"BertProcessing"})"),
                     "the post-processor \"BertProcessing\" is not supported; there are TemplateProcessing");
  EXPECT_INPUT_ERROR(of_model(model("", "", R"(,"dropout":0.5)")), "the model has a dropout; set it to null");
  EXPECT_INPUT_ERROR(of_model(model("", "", R"(,"end_of_word_suffix":"</w>")")), "has a end_of_word_suffix, \"</w>\"");
  EXPECT_INPUT_ERROR(
      with(R"("pre_tokenizer":{"type":"Sequence","pretokenizers":[{"type":"ByteLevel","add_prefix_space":false},)"
           R"({"type":"Digits","individual_digits":true}]})"),
      "\"Digits\" comes behind \"ByteLevel\", which must be the last");
}

TEST(TokenizerFile, RefusesMetaspaceIfTheFirstWordIsAmbiguous) {
  const std::string first = R"({"type":"Metaspace","replacement":"_","prepend_scheme":"first"})";
  const std::string always = R"({"type":"Metaspace","replacement":"_"})";
  EXPECT_NO_THROW(with(R"("pre_tokenizer":)" + first));
  EXPECT_NO_THROW(with(R"("normalizer":{"type":"NFC"},"pre_tokenizer":)" + always));
  EXPECT_INPUT_ERROR(with(R"("normalizer":{"type":"NFC"},"pre_tokenizer":)" + first),
                     "the pre-tokenizer \"Metaspace\" prepends first, which is supported beside no normalizer");
  EXPECT_INPUT_ERROR(with(R"("pre_tokenizer":{"type":"Sequence","pretokenizers":[)" + always + "," + first + "]}"),
                     "\"Metaspace\" stands twice");
}

TEST(TokenizerFile, ReportsIncompleteParts) {
  EXPECT_INPUT_ERROR(with(R"("normalizer":{})"), "t.json: the normalizer's key \"type\" is missing");
  EXPECT_INPUT_ERROR(with(R"("normalizer":{"type":7})"), "t.json: the normalizer's \"type\" is 7; it must be a text");
  EXPECT_INPUT_ERROR(with(R"("normalizer":{"type":"Replace","pattern":{"String":""},"content":"x"})"),
                     "has an empty pattern");
  EXPECT_INPUT_ERROR(with(R"("normalizer":{"type":"Replace","pattern":{"Glob":"x"},"content":"x"})"),
                     "has a pattern that is neither {\"String\": ...} nor {\"Regex\": ...}");
  EXPECT_INPUT_ERROR(
      with(R"("pre_tokenizer":{"type":"Split","pattern":{"Regex":"a("},"behavior":"Isolated","invert":false})"),
      "t.json: the regular expression \"a(\" has ( without )");
  EXPECT_INPUT_ERROR(
      with(R"("pre_tokenizer":{"type":"Split","pattern":{"Regex":"a"},"behavior":"Gone","invert":false})"),
      "\"Split\" has the behavior \"Gone\"; there are Removed");
  EXPECT_INPUT_ERROR(with(R"("pre_tokenizer":{"type":"Metaspace","replacement":"__"})"),
                     "has \"replacement\" of \"__\", which is not one character");
  EXPECT_INPUT_ERROR(with(R"("pre_tokenizer":{"type":"Metaspace","replacement":"_","prepend_scheme":"often"})"),
                     "the prepend_scheme \"often\"; there are always, first and never");
  EXPECT_INPUT_ERROR(with(R"("decoder":{"type":"Strip","content":" ","start":-1,"stop":0})"),
                     "the decoder's \"start\" is -1; it must be a whole number of 0 to 1000");
  EXPECT_INPUT_ERROR(
      with(R"("post_processor":{"type":"TemplateProcessing","single":[{"SpecialToken":{"id":"<s>","type_id":0}}],)"
           R"("special_tokens":{}})"),
      "uses \"<s>\", which its special_tokens do not hold");
  EXPECT_INPUT_ERROR(
      with(R"("post_processor":{"type":"TemplateProcessing","single":[{"Sequence":{"id":"B","type_id":0}}]})"),
      "asks for a second text");
}

TEST(TokenizerFile, MaliciousVocabulariesAreRefused) {
  EXPECT_INPUT_ERROR(of_model(model(R"("a":-1)", "")),
                     "gives token \"a\" the id -1; ids are whole numbers of 0 to 2147483647");
  EXPECT_INPUT_ERROR(of_model(model(R"("a":2147483648)", "")), "the id 2147483648");
  EXPECT_INPUT_ERROR(of_model(model(R"("a":99999999999999999999)", "")), "ids are whole numbers");
  EXPECT_INPUT_ERROR(of_model(model(R"("a":0.5)", "")), "the id 0.5");
  EXPECT_INPUT_ERROR(of_model(model(R"("a":"0")", "")), "the id \"0\"");
  EXPECT_INPUT_ERROR(of_model(model(R"("a":0,"b":0)", "")), "gives the id 0 to ");
  EXPECT_INPUT_ERROR(of_model(R"({"type":"BPE","vocab":[],"merges":[]})"),
                     "the model's \"vocab\" is []; it must be an object");
  EXPECT_EQ(of_model(model(R"("a":2147483647)", "")).vocabulary_size(), 2147483648);
}

TEST(TokenizerFile, MaliciousMergesAreRefused) {
  EXPECT_INPUT_ERROR(of_model(model(R"("a":0)", R"("a b")")),
                     "merge 0 of \"a\" and \"b\" needs the token \"b\", which the vocabulary does not hold");
  EXPECT_INPUT_ERROR(of_model(model(R"("a":0,"b":1)", R"("a b")")), "needs the token \"ab\"");
  EXPECT_INPUT_ERROR(of_model(model(R"("a":0)", R"("a")")), "has the merge \"a\"; merges are \"a b\", or");
  EXPECT_INPUT_ERROR(of_model(model(R"("a":0)", R"("a b c")")), "merges are");
  EXPECT_INPUT_ERROR(of_model(model(R"("a":0)", R"(["a"])")), "has the merge [\"a\"]");
  EXPECT_INPUT_ERROR(of_model(model(R"("a":0)", "1")), "has the merge 1");
  EXPECT_INPUT_ERROR(of_model(R"({"type":"BPE","vocab":{}})"), "the model's key \"merges\" is missing");
}

TEST(TokenizerFile, MutuallyRecursiveMergesTerminate) {
  const Tokenizer tokenizer = of_model(model(R"("a":0,"aa":1,"aaa":2,"aaaa":3)", R"("a a","aa a","a aa","aa aa")"));
  EXPECT_EQ(tokenizer.encode("aaaaa").size(), 2u);
}

TEST(TokenizerFile, AddedTokensHaveTheIdsOfTheTokenizersPackage) {
  const auto with_tokens = [](const std::string& tokens) { return with(R"("added_tokens":[)" + tokens + "]"); };
  EXPECT_EQ(with_tokens(added("3", "<x>") + "," + added("4", "<y>")).encode("a<y>b<x>"),
            (std::vector<TokenId>{0, 4, 1, 3}));
  EXPECT_EQ(with_tokens(added("2", "ab")).encode("aab"), (std::vector<TokenId>{0, 2}));
  EXPECT_INPUT_ERROR(with_tokens(added("7", "<x>")),
                     "\"<x>\" has the id 7, but it is token 3 by its place in the list");
  EXPECT_INPUT_ERROR(with_tokens(added("1", "a")), "\"a\" has the id 1, but it is token 0 of the model");
  EXPECT_INPUT_ERROR(with_tokens(added("3", "")), "the added token 0 has no content");
  EXPECT_INPUT_ERROR(with_tokens(added("3", "<x>") + "," + added("3", "<x>")), "\"<x>\"");
  EXPECT_INPUT_ERROR(with_tokens(added("-3", "<x>")),
                     "the added token 0's \"id\" is -3; it must be a whole number of 0 to 2147483647");
  EXPECT_INPUT_ERROR(with(R"("added_tokens":{})"), "t.json: \"added_tokens\" is {}; it must be a list [...]");
  EXPECT_INPUT_ERROR(with(R"("normalizer":{"type":"NFC"},"added_tokens":[)" + added("3", "\u00e9", "true") + "," +
                          added("4", "e\u0301", "true") + "]"),
                     "is normalized to \"\u00e9\", which is empty or another one's text");
}

TEST(TokenizerFile, AMissingUnknownTokenIsAnErrorOnlyWhenNeeded) {
  const Tokenizer tokenizer = of_model(model(R"("a":0)", "", R"(,"unk_token":"<unk>")"));
  EXPECT_EQ(tokenizer.encode("a"), std::vector<TokenId>{0});
  EXPECT_INPUT_ERROR(tokenizer.encode("ax"), "the unknown token \"<unk>\" is not in the vocabulary");
}

std::string sequence(const std::string& key, const std::string& list, const std::string& step, int count) {
  std::string steps;
  for (int i = 0; i < count; ++i) steps += (i == 0 ? "" : ",") + step;
  return "\"" + key + R"(":{"type":"Sequence",")" + list + "\":[" + steps + "]}";
}

TEST(TokenizerFile, TheGrowthOfNormalizedTextIsBounded) {
  const std::string doubles = R"({"type":"Replace","pattern":{"String":"a"},"content":"aa"})";
  EXPECT_EQ(with(sequence("normalizer", "normalizers", doubles, 3)).encode("a").size(), 8U);
  const std::string encoding = "t.json: encoding a text takes more than 1000100 steps for 1 bytes; its expressions";
  EXPECT_INPUT_ERROR(with(sequence("normalizer", "normalizers", doubles, 60)).encode("a"), encoding);
  const std::string lengthens =
      R"({"type":"Replace","pattern":{"String":"a"},"content":")" + std::string(60000, 'b') + "\"}";
  EXPECT_INPUT_ERROR(with("\"normalizer\":" + lengthens).encode(std::string(1000, 'a')),
                     "t.json: encoding a text takes more than 1100000 steps for 1000 bytes");
  const std::string literal =
      R"({"type":"Replace","pattern":{"String":")" + std::string(10'000, 'a') + "b\"},\"content\":\"\"}";
  EXPECT_INPUT_ERROR(with(sequence("normalizer", "normalizers", literal, 40)).encode(std::string(20'000, 'a')),
                     "t.json: encoding a text takes more than 3000000 steps for 20000 bytes");
  const std::string pattern = R"({"type":"Replace","pattern":{"Regex":"a"},"content":"aa"})";
  EXPECT_INPUT_ERROR(with(sequence("normalizer", "normalizers", pattern, 60)).encode("a"), encoding);
  const std::string prepends = R"({"type":"Prepend","prepend":")" + std::string(60000, 'b') + "\"}";
  EXPECT_INPUT_ERROR(with(sequence("normalizer", "normalizers", prepends, 60)).encode("a"), encoding);
  EXPECT_INPUT_ERROR(
      with(sequence("decoder", "decoders", doubles, 60)).decode(std::vector<TokenId>{0}),
      "t.json: decoding tokens takes more than 1000200 steps for 2 bytes; its decoders go over the text too often");
  EXPECT_INPUT_ERROR(
      with(R"("added_tokens":[)" + added("0", "a", "true") + "]," + sequence("normalizer", "normalizers", doubles, 60)),
      "t.json: encoding a text takes more than");
}

TEST(TokenizerFile, NumbersOfStepsAndSpecialTokensAreBounded) {
  const std::string digits = R"({"type":"Digits","individual_digits":true})";
  EXPECT_EQ(with(sequence("pre_tokenizer", "pretokenizers", digits, 100)).encode("ab"), std::vector<TokenId>{2});
  EXPECT_INPUT_ERROR(with(sequence("pre_tokenizer", "pretokenizers", digits, 101)),
                     "t.json: the pre-tokenizer has more than 100 steps");
  const std::string text = R"({"Sequence":{"id":"A"}})", special = R"({"SpecialToken":{"id":"x"}})";
  const auto shape = [](const std::string& single, const std::string& ids) {
    return R"({"type":"TemplateProcessing","single":[)" + single + R"(],"special_tokens":{"x":{"ids":[)" + ids + "]}}}";
  };
  EXPECT_EQ(with(sequence("post_processor", "processors", shape(text + "," + text, ""), 4)).encode("a", true).size(),
            16U);
  EXPECT_INPUT_ERROR(with(sequence("post_processor", "processors", shape(text + "," + text, ""), 5)),
                     "t.json: the post-processor repeats a text more than 16 times");
  std::string ids = "1";
  for (int i = 1; i < 9000; ++i) ids += ",1";
  EXPECT_INPUT_ERROR(with("\"post_processor\":" + shape(special + "," + special, ids)),
                     "t.json: the post-processor adds more than 10000 special tokens to a text");
}

TEST(TokenizerFile, StepsForAddedTokensAreBoundedByTheText) {
  const std::string space = R"({"id":3,"content":" ","single_word":false,"lstrip":true,"rstrip":true,)"
                            R"("normalized":false,"special":false})";
  const Tokenizer spaces = with("\"added_tokens\":[" + space + "]");
  EXPECT_EQ(spaces.encode("a" + std::string(100'000, ' ') + "a").size(), 3U);  // the first added token takes all spaces
  const Tokenizer tokenizer = with(R"("added_tokens":[)" + added("3", std::string(20000, 'a')) + "]");
  EXPECT_EQ(tokenizer.encode(std::string(20000, 'a')), std::vector<TokenId>{3});
  EXPECT_INPUT_ERROR(tokenizer.encode(std::string(19999, 'a') + "b" + std::string(19999, 'a')),
                     "t.json: encoding a text takes more than 4999900 steps for 39999 bytes");
}

TEST(TokenizerFile, CatastrophicBacktrackingIsAnError) {
  const Tokenizer tokenizer = with(
      R"("pre_tokenizer":{"type":"Split","pattern":{"Regex":"(?:a|ab?|b?a)+[cd]"},"behavior":"Isolated","invert":false})");
  EXPECT_INPUT_ERROR(tokenizer.encode(std::string(60, 'a')),
                     "t.json: encoding a text takes more than 1006000 steps for 60 bytes; its expressions, ");
  EXPECT_EQ(tokenizer.encode("ab"), std::vector<TokenId>{2});  // the tokenizer stays usable
}

}  // namespace
}  // namespace fsdp::text
