// SPDX-License-Identifier: Apache-2.0
/// Which messages are learned, end tokens, and warnings about missing special tokens.
#include <tessera/text/chat.hpp>

#include <string>
#include <vector>

#include <gtest/gtest.h>

#include "support/temporary_folder.hpp"

namespace fsdp::text::chat_marks_test {
namespace {

const std::filesystem::path tokenizers = TESSERA_TEST_DATA "/text/tokenizers";

struct Folder : test::TemporaryFolder {
  explicit Folder(const std::string& chat_template = "", const std::string& config = "{}", const std::string& map = "",
                  const std::string& tokenizer = "qwen.json") {
    std::filesystem::copy_file(tokenizers / tokenizer, path() / "tokenizer.json");
    write("chat_template.jinja", chat_template);
    if (!config.empty()) write("tokenizer_config.json", config);
    if (!map.empty()) write("special_tokens_map.json", map);
  }
  ChatFormat format(const std::string& name = "auto", const std::string& end_token = "") const {
    return {path() / "tokenizer.json", name, training_clock(), end_token};
  }
};

/// The text of the learned tokens.
std::string learned(const ChatFormat& format, const std::string& json) {
  const ChatTokens chat = format.encode(json, "chats.jsonl line 3");
  std::vector<TokenId> ids;
  for (std::size_t i = 0; i < chat.ids.size(); ++i)
    if (chat.answers[i]) ids.push_back(chat.ids[i]);
  return format.tokenizer().decode(ids, false);
}

/// A conversation of two turns; the marks are JSON members of the messages, such as ", \"weight\": 0".
std::string turns(const std::string& first, const std::string& second = "", const std::string& question = "") {
  return R"({"messages": [{"role": "user", "content": "a")" + question +
         R"(}, {"role": "assistant", "content": "bad")" + first +
         R"(}, {"role": "user", "content": "c"}, {"role": "assistant", "content": "good")" + second + "}]}";
}

constexpr const char* without_blocks =
    "{% for m in messages %}[{{ m.role }}]{{ m.content }};{% endfor %}{% if add_generation_prompt %}[assistant]{% "
    "endif %}";
constexpr const char* two_blocks =
    "{% for m in messages %}[{{ m.role }}]{% if m.role == 'assistant' %}{% generation %}{{ m.content }}"
    "{% endgeneration %}|{% generation %};{% endgeneration %}{% else %}{{ m.content }};{% endif %}{% endfor %}"
    "{% if add_generation_prompt %}[assistant]{% endif %}";

TEST(ChatMarks, AMarkedAnswerIsContextOnly) {
  const Folder blocks, none(without_blocks), two(two_blocks);
  for (const char* mark : {"\"weight\": 0", "\"weight\": 0.0", "\"weight\": false", "\"train\": false",
                           "\"training\": false", "\"loss\": false", "\"loss\": 0", "\"loss\": 0, \"train\": false"}) {
    SCOPED_TRACE(mark);
    const std::string marked = std::string(", ") + mark;
    EXPECT_EQ(learned(blocks.format("chatml"), turns(marked)), "good<|im_end|>");
    EXPECT_EQ(learned(none.format(), turns(marked)), "good;");
    EXPECT_EQ(learned(two.format(), turns(marked)), "good;");
    EXPECT_EQ(learned(two.format(), turns("", marked)), "bad;");
  }
  for (const char* mark : {", \"weight\": 1", ", \"train\": true", ", \"loss\": 1.0", ", \"weight\": null", ""})
    EXPECT_EQ(learned(blocks.format("chatml"), turns(mark, mark)), "bad<|im_end|>good<|im_end|>") << mark;
  EXPECT_EQ(learned(blocks.format("chatml"), turns("", "", ", \"weight\": 0")), "bad<|im_end|>good<|im_end|>");
}

TEST(ChatMarks, MarkedEarlierAnswersMayBeRewrittenByTheTemplate) {
  const Folder folder(
      "{% for m in messages %}[{{ m.role }}]{{ m.content if loop.last or m.role == 'user' else m.content | upper }}{% "
      "endfor %}"
      "{% if add_generation_prompt %}[assistant]{% endif %}");
  EXPECT_INPUT_ERROR(
      learned(folder.format(), turns("")),
      "writes message 2 otherwise once others follow it, so that what the model is to write there is not "
      "known; learn the last answer alone by --learn last, mark earlier answers by \"weight\": 0, or give another "
      "--chat-template");
  EXPECT_EQ(learned(folder.format(), turns(", \"weight\": 0")), "good");
}

TEST(ChatMarks, TheTemplateDoesNotSeeTheMarks) {
  const Folder folder("{% for m in messages %}{{ m | tojson }}{% endfor %}");
  const ChatFormat format = folder.format();
  const ChatTokens plain = format.encode(turns(""), "x"), marked = format.encode(turns(", \"weight\": 0"), "x");
  EXPECT_EQ(plain.ids, marked.ids);
  EXPECT_NE(plain.answers, marked.answers);
}

TEST(ChatMarks, MarksInCompletionsAreRespected) {
  const Folder folder;
  EXPECT_EQ(learned(folder.format("chatml"), R"({"prompt": [{"role": "user", "content": "a"}],
      "completion": [{"role": "assistant", "content": "b", "weight": 0}, {"role": "user", "content": "c"},
                     {"role": "assistant", "content": "d"}]})"),
            "d<|im_end|>");
}

TEST(ChatMarks, InvalidMarksAreRefusedWithTheirKey) {
  const Folder folder;
  const ChatFormat format = folder.format("chatml");
  const auto encode = [&](const std::string& json) { return format.encode(json, "chats.jsonl line 3"); };
  EXPECT_INPUT_ERROR(encode(turns(", \"weight\": 0.5")),
                     "chats.jsonl line 3: message 2 has \"weight\" of 0.5; it may be 0 or false (not learned)");
  EXPECT_INPUT_ERROR(encode(turns("", ", \"train\": \"no\"")), "message 4 has \"train\" of \"no\"; it may be");
  EXPECT_INPUT_ERROR(encode(turns(", \"weight\": 1, \"train\": false")), "has \"weight\" and \"train\", which differ");
  EXPECT_INPUT_ERROR(encode(turns("", "", ", \"weight\": 1")),
                     "message 1 of the role user has \"weight\", which asks to learn it, and only answers");
  EXPECT_INPUT_ERROR(encode(turns(", \"weight\": 0", ", \"weight\": 0")), "holds no answer that is learned");
  for (const char* key : {"train_detail", "loss_mask", "lossMask", "masked", "mask", "trainable", "Loss-Weight"})
    EXPECT_INPUT_ERROR(encode(turns(std::string(", \"") + key + "\": [1]")),
                       std::string("message 2 has \"") + key + "\", which is not known and may say what is learned");
  for (const char* member :
       {"\"train\": false", "\"weight\": 0.5", "\"train_on_inputs\": true", "\"loss_mask\": [0, 1]",
        "\"sample_weight\": 2", "\"mask_prompt\": true", "\"weight\": \"0\"", "\"train\": \"false\"",
        "\"train_on_inputs\": \"true\"", "\"mask\": {\"a\": 1}", "\"loss_mask\": \"0\"", "\"train_on_eos\": \"all\""})
    EXPECT_INPUT_ERROR(encode("{" + std::string(member) + ", " + turns("").substr(1)), "line 3: has \"");
}

TEST(ChatMarks, UnknownKeysThatMayBeTrainingMarksAreRefused) {
  const Folder folder;
  const ChatFormat format = folder.format("chatml");
  for (const char* member : {"\"skip\": true", "\"ignore\": 1", "\"exclude\": \"true\"", "\"include\": \"0\"",
                             "\"requires_grad\": false", "\"supervised\": false", "\"isUnmasked\": true",
                             "\"labels\": [-100, 5]", "\"label\": 0", "\"learning\": \"No\""})
    EXPECT_INPUT_ERROR(format.encode(turns(std::string(", ") + member), "chats.jsonl line 3"),
                       "which is not known and may say what is learned");
  for (const char* member :
       {"\"label\": \"greeting\"", "\"labels\": [\"a\"]", "\"skip\": null", "\"included\": {\"a\": 1}"})
    EXPECT_EQ(learned(format, turns(std::string(", ") + member)), "bad<|im_end|>good<|im_end|>") << member;
}

TEST(ChatMarks, AnswersOfRolesOtherThanTheAssistantAreRefused) {
  const Folder folder;
  const ChatFormat format = folder.format("chatml");
  const auto chat = [](const std::string& role, const std::string& mark = "") {
    return R"({"messages": [{"role": "user", "content": "a"}, {"role": ")" + role + R"(", "content": "bad")" + mark +
           R"(}, {"role": "user", "content": "c"}, {"role": "assistant", "content": "good"}]})";
  };
  for (const char* role : {"gpt", "bot", "model", "Assistant"})
    EXPECT_INPUT_ERROR(format.encode(chat(role), "chats.jsonl line 3"),
                       "chats.jsonl line 3: message 2 of the role " + std::string(role) +
                           " stands beside answers of the role assistant, and only these are learned; name its role "
                           "assistant, or mark it by \"weight\": 0");
  EXPECT_EQ(learned(format, chat("gpt", ", \"weight\": 0")), "good<|im_end|>");
  EXPECT_EQ(learned(format, chat("tool")), "good<|im_end|>");
}

TEST(ChatMarks, UnrelatedKeysAreNotTreatedAsMarks) {
  const Folder folder;
  const ChatFormat format = folder.format("chatml");
  for (const char* member : {"\"name\": \"x\"", "\"id\": 7", "\"tool_call_id\": \"y\"", "\"reasoning_content\": \"z\"",
                             "\"metadata\": {\"weight\": 0}", "\"constraint\": 1", "\"masked\": null", "\"likes\": 0"})
    EXPECT_EQ(learned(format, turns(std::string(", ") + member)), "bad<|im_end|>good<|im_end|>") << member;
  for (const char* member :
       {"\"weight\": 1", "\"train\": true", "\"train_on_inputs\": false", "\"loss\": 2.31", "\"split\": \"train\"",
        "\"training_set\": \"set 3\"", "\"train_info\": {\"a\": 1}", "\"weight\": null"})
    EXPECT_EQ(learned(format, "{" + std::string(member) + ", " + turns("").substr(1)), "bad<|im_end|>good<|im_end|>")
        << member;
}

TEST(ChatEndTokens, SpecialTokensAreReadAsInTransformers) {
  using Tokens = std::map<std::string, std::string>;
  const auto tokens = [](const std::string& config, const std::string& map) {
    return special_tokens_beside(Folder("", config, map).path() / "tokenizer.json");
  };
  const Tokens both = {{"bos_token", "<b>"}, {"eos_token", "<e>"}};
  const std::string map = R"({"bos_token": "<b>", "eos_token": {"content": "<e>", "lstrip": false}})";
  EXPECT_EQ(tokens("{}", map), both);
  EXPECT_EQ(tokens("", map), both);
  EXPECT_EQ(tokens(map, ""), both);
  EXPECT_EQ(tokens(R"({"eos_token": null})", map), both);
  EXPECT_EQ(tokens(R"({"eos_token": "<x>"})", map), both);  // 5.24 merges the map over the configuration, ...
  EXPECT_EQ(tokens(R"({"eos_token": "<x>"})", R"({"eos_token": null})"), Tokens());
  EXPECT_EQ(tokens(R"({"eos_token": "<x>", "added_tokens_decoder": {}})", map),
            (Tokens{{"eos_token", "<x>"}}));  // ... unless that lists the added tokens
  EXPECT_EQ(tokens(R"({"image_token": "<i>", "add_bos_token": true, "extra_special_tokens": {"x": "<x>"}})", ""),
            (Tokens{{"image_token", "<i>"}, {"x", "<x>"}}));
  EXPECT_INPUT_ERROR(tokens("{}", R"({"eos_token": 5})"), "special_tokens_map.json: \"eos_token\" is neither a text");
  EXPECT_INPUT_ERROR(tokens("{}", "[]"), "special_tokens_map.json: is not an object");
}

TEST(ChatEndTokens, CompletionsEndWithTheEndTokenOrAreRefused) {
  constexpr const char* pair = R"({"prompt": "Q: x\nA:", "completion": " y"})";
  const Folder map("", "{}", R"({"eos_token": "<|endoftext|>"})"), none;
  EXPECT_EQ(learned(map.format("plain"), pair), " y<|endoftext|>");
  EXPECT_INPUT_ERROR(
      none.format("plain").encode(pair, "chats.jsonl line 3"),
      "chats.jsonl line 3: " + (none.path() / "tokenizer.json").string() +
          ": neither tokenizer_config.json nor special_tokens_map.json beside it names an eos_token (the "
          "second counts where the first has no \"added_tokens_decoder\"); name the token that ends a "
          "document by --end-token, or --end-token none");
  EXPECT_EQ(learned(none.format("plain", "none"), pair), " y");
  EXPECT_EQ(learned(none.format("plain", "<|im_end|>"), pair), " y<|im_end|>");
  EXPECT_EQ(learned(map.format("plain", "none"), pair), " y");
  EXPECT_EQ(learned(map.format("plain", "!"), pair), " y!");
  EXPECT_INPUT_ERROR(none.format("plain", "<no>"), "the end token \"<no>\" is none of ");
  const Folder absent("", R"({"eos_token": "<no>"})");
  EXPECT_INPUT_ERROR(absent.format("plain").encode(pair, "x"), "x: the end token \"<no>\" is none of ");
}

TEST(ChatEndTokens, TheEndTokenIsPassedToTheTemplate) {
  const Folder folder("{% for m in messages %}{{ m.content }}{{ eos_token }}{% endfor %}");
  const std::string chat = turns("");
  EXPECT_EQ(learned(folder.format("auto", "<|im_end|>"), chat), "bad<|im_end|>good<|im_end|>");
  EXPECT_NE(folder.format("auto", "<|im_end|>").digest(), folder.format("auto").digest());
  EXPECT_NE(folder.format("auto", "none").digest(), folder.format("auto").digest());
}

using Warnings = std::vector<std::string>;

TEST(ChatWarnings, ATemplateThatUsesAnUndefinedSpecialToken) {
  const Folder folder("{{ bos_token }}{{ messages[0].content }}{{ eos_token }}");
  const std::string file = (folder.path() / "tokenizer.json").string(),
                    name = (folder.path() / "chat_template.jinja").string();
  const std::string bos = name + " uses bos_token, which nothing beside " + file +
                          " names: it writes nothing there; name one in special_tokens_map.json";
  EXPECT_EQ(
      folder.format().warnings(),
      (Warnings{bos, name + " uses eos_token, which nothing beside " + file +
                         " names: it writes nothing there; name one in special_tokens_map.json or by --end-token"}));
  EXPECT_EQ(folder.format("auto", "none").warnings(), Warnings{bos});
  EXPECT_EQ(folder.format("auto", "<|im_end|>").warnings(), Warnings{bos});
  EXPECT_EQ(folder.format("plain", "none").warnings(), Warnings());
  EXPECT_EQ(folder.format("plain").warnings().size(), 1u);
}

TEST(ChatWarnings, TemplateMarkersThatAreNotTokensOfTheTokenizer) {
  const Folder folder("<|user|>{{ messages[0].content }}<|im_end|><\uff5cend\uff5c>a <| b", "{}", "", "smollm.json");
  const std::string file = (folder.path() / "tokenizer.json").string();
  const std::string rest = ", which is no token of " + file +
                           ": each becomes several; take the model's own template, or --chat-template plain";
  EXPECT_EQ(
      folder.format("llama3").warnings(),
      Warnings{"the template llama3 writes <|begin_of_text|>, <|end_header_id|>, <|eot_id|>, <|start_header_id|>" +
               rest});
  EXPECT_EQ(folder.format().warnings(), Warnings{(folder.path() / "chat_template.jinja").string() +
                                                 " writes <|im_end|>, <|user|>, <\uff5cend\uff5c>" + rest});
  EXPECT_EQ(folder.format("chatml").warnings(), Warnings{"the template chatml writes <|im_end|>, <|im_start|>" + rest});
  EXPECT_EQ(Folder().format("chatml").warnings(), Warnings());
}

}  // namespace
}  // namespace fsdp::text::chat_marks_test
