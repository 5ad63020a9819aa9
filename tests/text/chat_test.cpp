// SPDX-License-Identifier: Apache-2.0
#include <tessera/fsdp/core/error.hpp>
#include <tessera/text/chat.hpp>

#include <string>

#include <gtest/gtest.h>

#include "support/temporary_folder.hpp"

namespace fsdp::text {
namespace {

const std::filesystem::path tokenizers = TESSERA_TEST_DATA "/text/tokenizers";

/// The text of the learned tokens and of all tokens.
struct Decoded {
  std::string answers, all;
};

Decoded decoded(const ChatFormat& format, std::string_view json) {
  const ChatTokens chat = format.encode(json, "chats.jsonl line 3");
  std::vector<TokenId> learned;
  for (std::size_t i = 0; i < chat.ids.size(); ++i)
    if (chat.answers[i]) learned.push_back(chat.ids[i]);
  return {format.tokenizer().decode(learned, false), format.tokenizer().decode(chat.ids, false)};
}

/// A folder with a byte-level tokenizer and a user-defined chat template.
struct Folder : test::TemporaryFolder {
  explicit Folder(const std::string& chat_template) {
    std::filesystem::copy_file(tokenizers / "qwen.json", path() / "tokenizer.json");
    write("chat_template.jinja", chat_template);
    write("tokenizer_config.json", R"({"eos_token": {"content": "<|endoftext|>"}})");
  }
  ChatFormat format(const std::string& name = "auto") const {
    return {path() / "tokenizer.json", name, training_clock()};
  }
};

constexpr const char* two_turns = R"({"messages": [{"role": "system", "content": "Be kind."},
    {"role": "user", "content": "One?"}, {"role": "assistant", "content": "First answer."},
    {"role": "user", "content": "Two?"}, {"role": "assistant", "content": "Second\nanswer."}]})";

TEST(Chat, AnswersAreTheContentsOfGenerationBlocks) {
  for (const char* name : {"gpt2.json", "qwen.json", "gemma.json", "gpt4o.json"}) {
    SCOPED_TRACE(name);
    const Decoded chat = decoded(ChatFormat(tokenizers / name, "chatml", training_clock()), two_turns);
    EXPECT_EQ(chat.answers, "First answer.<|im_end|>Second\nanswer.<|im_end|>");
    EXPECT_EQ(
        chat.all,
        "<|im_start|>system\nBe kind.<|im_end|>\n<|im_start|>user\nOne?<|im_end|>\n<|im_start|>assistant\nFirst "
        "answer.<|im_end|>\n<|im_start|>user\nTwo?<|im_end|>\n<|im_start|>assistant\nSecond\nanswer.<|im_end|>\n");
  }
}

TEST(Chat, WithoutGenerationBlocksAnAnswerIsTheTextItsTurnAdds) {
  const Folder folder(
      "{% for m in messages %}[{{ m.role }}]{{ m.content }}{% endfor %}"
      "{% if add_generation_prompt %}[assistant]{% endif %}");
  EXPECT_EQ(decoded(folder.format(), two_turns).answers, "First answer.Second\nanswer.");
}

/// A conversation of `count` answers without questions.
std::string answers(int count) {
  std::string text;
  for (int i = 0; i < count; ++i) text += R"(,{"role":"assistant","content":"a"})";
  return R"({"messages":[)" + text.substr(1) + "]}";
}

TEST(Chat, StepsOverAllAnswersAreBounded) {
  const Folder slow("{% for m in messages %}{% for a in range(100) %}{% endfor %}{{ m.content }}{% endfor %}");
  EXPECT_EQ(decoded(slow.format(), answers(10)).answers, "aaaaaaaaaa");
  EXPECT_INPUT_ERROR(slow.format().encode(answers(300), "chats.jsonl line 3"),
                     "takes more than 5300000 steps to write 300 messages up to each answer; split the conversation");
  // A word whose tokens depend on its end, so that the end of each answer is searched from the beginning.
  const Folder one_word("{% for m in messages %}{% generation %}{{ m.content }}{% endgeneration %}{% endfor %}");
  std::string vocabulary = R"("a":0,"<|endoftext|>":1)", merges;
  for (int power = 0; power < 11; ++power) {
    const std::string half(std::size_t{1} << power, 'a');
    vocabulary += message(",\"", half, half, "\":", power + 2);
    merges += message(power == 0 ? "" : ",", "\"", half, " ", half, "\"");
  }
  one_word.write("tokenizer.json",
                 R"({"model":{"type":"BPE","vocab":{)" + vocabulary + R"(},"merges":[)" + merges + "]}}");
  EXPECT_EQ(one_word.format().encode(answers(900), "a").ids.size(), 4u);  // 512 + 256 + 128 + 4
  EXPECT_INPUT_ERROR(one_word.format().encode(answers(2100), "a"),
                     "a conversation of 2100 bytes is encoded more than 1000 times to find its answers' tokens");
}

TEST(Chat, ARecordWithManyKeysIsReadAndADuplicateKeyRefused) {
  const Folder folder("{% for m in messages %}{{ m.content }}{{ k99999 }}{% endfor %}");
  std::string keys = "\"k0\":0";
  for (int i = 1; i < 100'000; ++i) keys += message(",\"k", i, "\":", i);
  const auto row = [&](const std::string& more) {
    return R"({"messages":[{"role":"assistant","content":"a"}],"chat_template_kwargs":{)" + keys + more + "}}";
  };
  EXPECT_EQ(decoded(folder.format(), row("")).answers, "a99999");
  EXPECT_INPUT_ERROR(folder.format().encode(row(R"(,"k7":1)"), "chats.jsonl line 3"),
                     "chats.jsonl line 3: the key \"k7\" stands twice in one object");
}

TEST(Chat, ATemplateThatRewritesEarlierTurnsIsRefused) {
  const Folder folder(
      "{% for m in messages %}[{{ m.role }}]{% if not loop.last %}{{ m.content.split('</think>')[-1] }}{% else %}"
      "{{ m.content }}{% endif %}{% endfor %}{% if add_generation_prompt %}[assistant]{% endif %}");
  const char* thinking = R"({"messages": [{"role": "user", "content": "a"},
      {"role": "assistant", "content": "<think>x</think>b"}, {"role": "user", "content": "c"},
      {"role": "assistant", "content": "d"}]})";
  EXPECT_INPUT_ERROR(folder.format().encode(thinking, "chats.jsonl line 3"),
                     "writes message 2 otherwise once others follow it");
  EXPECT_EQ(decoded(folder.format(), two_turns).answers, "First answer.Second\nanswer.");
}

TEST(Chat, CompletionsAreLearnedAndPromptsAreNot) {
  const Folder folder("");
  EXPECT_EQ(decoded(folder.format("plain"), R"({"prompt": "2 + 2 =\n", "completion": "4"})").answers, "4<|endoftext|>");
  const char* messages = R"({"prompt": [{"role": "user", "content": "a"}, {"role": "assistant", "content": "old"},
      {"role": "user", "content": "b"}], "completion": [{"role": "assistant", "content": "new"}]})";
  EXPECT_EQ(decoded(folder.format("chatml"), messages).answers, "new<|im_end|>");
  EXPECT_EQ(decoded(folder.format("plain"), messages).answers, " new<|endoftext|>");
}

TEST(Chat, NumbersInToolsAreWrittenAsInTheData) {
  const Folder folder(
      "{{ tools | tojson }}{% for m in messages %}{% generation %}{{ m.content }}{% endgeneration %}{% endfor %}");
  const std::string tools =
      R"([{"maximum": 18446744073709551615, "minimum": -170141183460469231731687303715884105728}])";
  const Decoded chat =
      decoded(folder.format(), R"({"messages": [{"role": "assistant", "content": "x"}], "tools": )" + tools + "}");
  EXPECT_EQ(chat.all, tools + "x");
}

TEST(Chat, TokensThatOverlapAnAnswerBelongToIt) {
  const Folder folder(
      "A question. {% for m in messages %}{% if m.role == 'assistant' %}x<|im_{% generation %}{{ m.content }}"
      "{% endgeneration %}|>y{% endif %}{% endfor %}");
  const Decoded chat = decoded(
      folder.format(), R"({"messages": [{"role": "user", "content": "x"}, {"role": "assistant", "content": "end"}]})");
  EXPECT_EQ(chat.all, "A question. x<|im_end|>y");
  EXPECT_EQ(chat.answers, "<|im_end|>");  // one token; the answer is its middle
}

TEST(Chat, InvalidConversationsAreReportedWithTheirLine) {
  const Folder folder("{{ messages[0].content }}");
  const ChatFormat format = folder.format("chatml");
  const auto encode = [&](const std::string& json) { return format.encode(json, "chats.jsonl line 3"); };
  EXPECT_INPUT_ERROR(encode("[]"), "chats.jsonl line 3: is not a JSON object");
  EXPECT_INPUT_ERROR(encode(R"({"text": "a"})"), "has neither \"messages\" nor \"prompt\" and \"completion\"");
  EXPECT_INPUT_ERROR(encode(R"({"messages": []})"), "\"messages\" is not a list of messages");
  EXPECT_INPUT_ERROR(encode(R"({"messages": [{"content": "a"}]})"), "has no \"role\"");
  EXPECT_INPUT_ERROR(encode(R"({"messages": [{"role": "user", "content": "a"}]})"), "holds no answer");
  EXPECT_INPUT_ERROR(encode(R"({"prompt": "a", "completion": []})"), "is a text, and the other is none");
  EXPECT_INPUT_ERROR(encode(R"({"messages": [{"role": "assistant", "content": "a"}]})"),
                     "chats.jsonl line 3: the template chatml: line 6: the template refuses the conversation: the role "
                     "assistant answers nothing");
  EXPECT_INPUT_ERROR(encode(R"({"messages": [{"role": "user", "content": "a"}, {"role": "system", "content": "b"}]})"),
                     "the role system stands behind other messages");
  EXPECT_INPUT_ERROR(ChatFormat(tokenizers / "smollm.json", "auto", training_clock()),
                     "has no chat template beside it");
  EXPECT_INPUT_ERROR(folder.format("nowhere.jinja"), "nowhere.jinja: no such file");
}

TEST(Chat, APromptEndsWhereTheAnswerBegins) {
  const Folder folder("");
  EXPECT_EQ(folder.format("llama3").prompt(R"([{"role": "user", "content": "Hi"}])"),
            "<|begin_of_text|><|start_header_id|>user<|end_header_id|>\n\nHi<|eot_id|><|start_header_id|>assistant"
            "<|end_header_id|>\n\n");
}

}  // namespace
}  // namespace fsdp::text
