// SPDX-License-Identifier: Apache-2.0
/// Every part of a record reaches the text, or is refused or reported by name.
#include <tessera/text/chat.hpp>

#include <fstream>
#include <string>
#include <vector>

#include <gtest/gtest.h>
#include <nlohmann/json.hpp>

#include "support/temporary_folder.hpp"

namespace fsdp::text::chat_parts_test {
namespace {

const std::filesystem::path tokenizers = TESSERA_TEST_DATA "/text/tokenizers";

struct Folder : test::TemporaryFolder {
  explicit Folder(const std::string& chat_template = "") {
    std::filesystem::copy_file(tokenizers / "qwen.json", path() / "tokenizer.json");
    write("chat_template.jinja", chat_template);
    write("tokenizer_config.json", R"({"eos_token": "<|endoftext|>"})");
  }
  ChatFormat format(const std::string& name = "auto", Learn learn = Learn::all) const {
    return {path() / "tokenizer.json", name, training_clock(), "", learn};
  }
};

/// The text of all tokens and of the learned tokens.
std::string all(const ChatFormat& format, const std::string& json) {
  return format.tokenizer().decode(format.encode(json, "chats.jsonl line 3").ids, false);
}
std::string learned(const ChatFormat& format, const std::string& json) {
  const ChatTokens chat = format.encode(json, "chats.jsonl line 3");
  std::vector<TokenId> ids;
  for (std::size_t i = 0; i < chat.ids.size(); ++i)
    if (chat.answers[i]) ids.push_back(chat.ids[i]);
  return format.tokenizer().decode(ids, false);
}

std::string record(const std::string& messages, const std::string& more = "") {
  return R"({"messages": [)" + messages + "]" + more + "}";
}
std::string content(const std::string& role, const std::string& json, const std::string& more = "") {
  return R"({"role": ")" + role + R"(", "content": )" + json + more + "}";
}
const std::string ask = content("user", "\"q\""), answer = content("assistant", "\"a\"");
const std::string chat = ask + ", " + answer;
const std::string tools =
    R"(, "tools": [{"type": "function", "function": {"name": "add", "description": "Sums \"two\" é",
    "parameters": {"type": "object", "properties": {"first": {"type": "number", "enum": ["one", "two"]}}}}}])";
const std::string called = R"(, "tool_calls": [{"type": "function", "function": {"name": "add", "arguments": )";
const std::string call = content("assistant", "null", called + R"({"first": "li\"ne\n2"}}}])");

/// The parts of a record that the template `text` does not write.
std::string missing(const std::string& text, const std::string& json) {
  const Folder folder(text);
  std::string missing = folder.format().encode(json, "x").missing;
  const std::size_t name = missing.find(folder.path().string());
  return name == missing.npos ? missing : missing.substr(0, name) + "T" + missing.substr(missing.find(".jinja") + 6);
}

TEST(ChatParts, NullKeysCountAsAbsent) {
  const Folder folder;
  const ChatFormat format = folder.format("chatml");
  const std::string text = all(format, record(chat));
  for (const char* key : {"prompt", "completion", "tools", "chat_template_kwargs", "system", "images", "conversations",
                          "functions", "weight", "other"})
    EXPECT_EQ(all(format, record(chat, std::string(", \"") + key + "\": null")), text) << key;
  for (const char* key :
       {"tool_calls", "name", "tool_call_id", "reasoning_content", "images", "weight", "function_call"})
    EXPECT_EQ(all(format, record(ask + ", " + content("assistant", "\"a\"", std::string(", \"") + key + "\": null"))),
              text)
        << key;
  EXPECT_EQ(learned(format, R"({"messages": null, "prompt": "p", "completion": " c", "tools": null})"),
            " c<|endoftext|>");
  EXPECT_EQ(learned(format, R"({"prompt": "p", "completion": " c", "tools": []})"), " c<|endoftext|>");
  EXPECT_EQ(all(Folder("{% for m in messages %}{{ m | tojson }}{% endfor %}").format(),
                record(content("assistant", "\"a\"", R"(, "name": null, "tool_calls": null)"))),
            R"({"role": "assistant", "content": "a"})");
  // An empty list of tools or calls counts as absent, too: templates ask whether they are given.
  const std::string asking =
      "{% if tools is not none %}T{% endif %}{% for m in messages %}"
      "{{ 'C' if 'tool_calls' in m else m.content }}{% endfor %}";
  EXPECT_EQ(all(Folder(asking).format(),
                record(ask + ", " + content("assistant", "\"a\"", R"(, "tool_calls": [])"), R"(, "tools": [])")),
            "qa");
}

TEST(ChatParts, NonTextContentIsRefusedByName) {
  const Folder folder("{% for m in messages %}{{ m.content }}{% endfor %}");
  for (const ChatFormat& format : {folder.format("chatml"), folder.format("llama3"), folder.format()}) {
    const auto expect = [&](const std::string& json, const std::string& sentence) {
      EXPECT_INPUT_ERROR(format.encode(record(content("user", json) + ", " + answer), "chats.jsonl line 3"),
                         "chats.jsonl line 3: message 1" + sentence);
    };
    expect("null", " has \"content\" that is null, and calls no tool; give it a text, or leave the record out");
    expect("7", " has \"content\" of the type number, and it must be a text, or a list of text parts");
    expect(R"({"a": 1})", " has \"content\" of the type object, and");
    expect(R"(["hi"])", ": part 1 of \"content\" is of the type string, and must be an object {\"type\": \"text\"");
    expect(R"([{"type": "text", "text": "a"}, {"type": "image_url", "image_url": {"url": "x"}}])",
           ": part 2 of \"content\" has \"image_url\", and the model reads text alone");
    expect(R"([{"type": "image"}])",
           ": part 1 of \"content\" is of the type \"image\", and the model reads text alone");
    expect(R"([{"type": "text", "text": null}])", ": part 1 of \"content\" has no \"text\"");
  }
  const ChatFormat format = folder.format("chatml");
  const auto encode = [&](const std::string& messages) { return format.encode(record(messages), "line 3"); };
  EXPECT_INPUT_ERROR(encode(R"({"role": "user"}, )" + answer), "message 1 has no \"content\", and calls no tool");
  EXPECT_INPUT_ERROR(encode(ask + ", " + content("assistant", "null", R"(, "tool_calls": [])")), "message 2 has \"con");
  EXPECT_INPUT_ERROR(encode("null, " + answer), "message 1 of \"messages\" has no \"role\"");
  EXPECT_INPUT_ERROR(encode(content("user", "\"q\"", R"(, "name": ["x"])")), "has \"name\" of the type array");
  EXPECT_INPUT_ERROR(encode(content("user", "\"q\"", R"(, "reasoning_content": {})")), "of the type object");
  EXPECT_INPUT_ERROR(encode(content("assistant", "\"\"", called + "null}}]")),
                     "message 1: call 1 has no \"arguments\"; give them as an object, or as the text of one");
  EXPECT_INPUT_ERROR(encode(content("assistant", "\"\"", called + "[1]}}]")), "has \"arguments\" of the type array");
  EXPECT_INPUT_ERROR(encode(content("assistant", "\"\"", R"(, "tool_calls": [{"id": "1"}])")),
                     "call 1 has no \"name\"");
}

TEST(ChatParts, TextPartsAreJoinedUnlessTheTemplateIteratesThem) {
  const std::string parts = R"([{"type": "text", "text": "one "}, {"type": "text", "text": "two", "image": null}])";
  const std::string json = record(content("user", parts) + ", " + content("assistant", parts));
  const auto text = [&](const std::string& content) { return "{% for m in messages %}" + content + ";{% endfor %}"; };
  EXPECT_EQ(learned(Folder().format("chatml"), json), "one two<|im_end|>");
  EXPECT_EQ(learned(Folder().format("llama3"), json), "one two<|eot_id|>");
  for (const char* joined :
       {"{{ m.content }}", "{{ m.content if m.content is string else '' }}", "{{ m.content + '' }}",
        "{% if m.content is string %}{{ m.content }}{% else %}{{ m.content | tojson }}{% endif %}",
        "{% if m.content is string %}{{ m.content }}{% else %}{{ m.content[0].text }}{% endif %}"})
    EXPECT_EQ(all(Folder(text(joined)).format(), json), "one two;one two;") << joined;
  EXPECT_EQ(all(Folder(text("{% for p in m.content %}<{{ p.text | trim }}>{% endfor %}")).format(), json),
            "<one><two>;<one><two>;");
}

TEST(ChatParts, ASystemKeyBecomesTheFirstMessage) {
  const Folder folder;
  const ChatFormat format = folder.format("chatml");
  const std::string first = content("system", "\"Be kind.\"");
  const std::string expected = all(format, record(first + ", " + chat));
  for (const char* key : {"system", "system_prompt", "system_message"})
    EXPECT_EQ(all(format, record(chat, std::string(", \"") + key + "\": \"Be kind.\"")), expected);
  EXPECT_EQ(all(format, R"({"system": "Be kind.", "prompt": [)" + ask + R"(], "completion": [)" + answer + "]}"),
            expected);
  EXPECT_EQ(all(format, record(first + ", " + chat, R"(, "system": "Be kind.")")), expected);
  EXPECT_EQ(all(format, record(chat, R"(, "system": "")")), all(format, record(chat)));
  EXPECT_INPUT_ERROR(all(format, record(first + ", " + chat, R"(, "system": "No.")")), "leave one of them out");
  EXPECT_INPUT_ERROR(all(format, R"({"system": "s", "prompt": "p", "completion": "c"})"),
                     "has \"system\" next to a \"prompt\" that is a text");
  EXPECT_INPUT_ERROR(all(format, record(ask + ", " + content("assistant", "7"), R"(, "system": "s")")),
                     "chats.jsonl line 3: message 2 has \"content\" of the type number");
}

TEST(ChatParts, UnsupportedMediaAndAmbiguousRecordsAreRefused) {
  const Folder folder;
  const ChatFormat format = folder.format("chatml");
  const auto encode = [&](const std::string& more) { return format.encode(record(chat, more), "chats.jsonl line 3"); };
  for (const char* key : {"images", "videos", "audios", "image"}) {
    const std::string member = std::string(", \"") + key + "\": [\"x\"]";
    EXPECT_INPUT_ERROR(encode(member),
                       std::string("chats.jsonl line 3: has \"") + key + "\", and the model reads text");
    EXPECT_INPUT_ERROR(format.encode(record(content("user", "\"q\"", member) + ", " + answer), "x"),
                       "x: message 1 has");
    EXPECT_EQ(encode(std::string(", \"") + key + "\": []").ids, encode("").ids);
  }
  EXPECT_INPUT_ERROR(encode(R"(, "functions": [{"name": "f"}])"), "which templates do not read; write it as \"tools\"");
  EXPECT_INPUT_ERROR(format.encode(record(content("assistant", "\"\"", R"(, "function_call": {"name": "f"})")), "x"),
                     "write it as \"tool_calls\"");
  EXPECT_INPUT_ERROR(encode(R"(, "chat_template_kwargs": {"tools": []})"), "which is set for the template otherwise");
  EXPECT_INPUT_ERROR(
      format.encode(record(content("user", R"([{"type": "text", "text": "q", "mask": 1}])") + ", " + answer), "x"),
      "x: message 1 has \"mask\" in a part of its content");
  EXPECT_INPUT_ERROR(encode(R"(, "tools": [7])"), "tool 1 of \"tools\" is not an object");
  for (const char* form : {R"("completion": "c")", R"("conversations": [1])", R"("instruction": "i", "output": "o")",
                           R"("dialogue": "d")"})
    EXPECT_INPUT_ERROR(encode(std::string(", ") + form), "two forms of a conversation; leave one of them out");
  for (const char* form : {R"("completion": "")", R"("conversations": [])", R"("instruction": "", "output": "")"})
    EXPECT_EQ(encode(std::string(", ") + form).ids, encode("").ids) << form;
  EXPECT_INPUT_ERROR(all(format, R"({"prompt": "p", "completion": "c", "conversations": [1]})"),
                     "has \"prompt\" and \"conversations\", two forms");
  EXPECT_INPUT_ERROR(all(format, R"({"prompt": "p", "completion": "c")" + tools + "}"), "has \"tools\" next to a");
  EXPECT_INPUT_ERROR(all(format, R"({"instruction": "i", "output": "o"})"), "write its \"instruction\" as \"prompt\"");
}

TEST(ChatParts, UnusedKeysAreReported) {
  const Folder folder("{% for m in messages %}{{ m['name'] }}{{ m.content }}{% if thinking %}{% endif %}{% endfor %}");
  const ChatTokens tokens = folder.format().encode(
      record(content("user", "\"q\"", R"(, "name": "n", "id": 7, "tool_call_id": null)") + ", " + answer,
             R"(, "prompt": "q", "source": "s", "weight": 1, "chat_template_kwargs": {"thinking": true, "tone": 1})"),
      "x");
  EXPECT_EQ(tokens.unread, (std::vector<std::string>{"prompt", "source", "chat_template_kwargs.tone", "messages.id"}));
}

TEST(ChatParts, BuiltInTemplatesRefuseUnsupportedParts) {
  const Folder folder;
  for (const char* name : {"chatml", "llama3", "plain"}) {
    const ChatFormat format = folder.format(name);
    EXPECT_INPUT_ERROR(format.encode(record(ask + ", " + call + ", " + ask + ", " + answer), "chats.jsonl line 3"),
                       std::string("chats.jsonl line 3: message 2 calls tools, and the template ") + name +
                           " has no place for calls; take the model's own template, or --chat-template qwen3");
    EXPECT_INPUT_ERROR(format.encode(record(chat, tools), "x"),
                       std::string("x: \"tools\" is given, and the template ") + name + " has no place for tools");
  }
  EXPECT_EQ(folder.format("chatml").encode(record(ask + ", " + content("assistant", "\" \\n\"")), "x").empty, 1);
  EXPECT_EQ(folder.format("plain").encode(R"({"prompt": "p", "completion": ""})", "x").empty, 1);
  EXPECT_EQ(folder.format("chatml").encode(record(chat), "x").empty, 0);
  const std::string thought = record(ask + ", " + content("assistant", "\"\"", R"(, "reasoning_content": "why so")"));
  EXPECT_EQ(folder.format("chatml").encode(thought, "x").empty, 1);
  EXPECT_EQ(folder.format("qwen3").encode(thought, "x").empty, 0);
}

const std::string whole =
    "{{ tools | tojson if tools }}{% for m in messages %}{% generation %}{{ m.reasoning_content }}{{ m.content | trim "
    "}}"
    "{% for c in m.tool_calls %}{{ c.function.name }}{{ c.function.arguments | tojson }}{% endfor %}|{% endgeneration "
    "%}"
    "{% endfor %}";
/// Returns a text in which one string is replaced by another.
std::string whole_but(const std::string& what, const std::string& by) {
  std::string text = whole;
  return text.replace(text.find(what), what.size(), by);
}

TEST(ChatParts, PartsThatATemplateOmitsAreReported) {
  const std::string json = record(content("user", "\" q \"") + ", " + call + ", " + answer, tools);
  EXPECT_EQ(missing(whole, json), "");
  EXPECT_EQ(
      missing(whole, record(chat + ", " + content("assistant", "\"\"", called + R"("{\"first\": \"\\u00e9\"}"}}])"))),
      "");
  EXPECT_EQ(missing(whole_but("{{ m.content | trim }}", "{{ m.content if m.role == 'user' }}"), json),
            "T does not write the text of message 3");
  EXPECT_EQ(missing(whole_but("in messages", "in messages | reverse"), record(chat)),
            "T does not write the text of message 2");
  EXPECT_EQ(missing(whole_but("{{ c.function.name }}", ""), record(ask + ", " + call)),
            "T does not write all of the call of add in message 2");
  EXPECT_EQ(missing(whole_but(" | tojson }}{% endfor", ".second }}{% endfor"), json),
            "T does not write all of the call of add in message 2");
  EXPECT_EQ(missing(whole_but("m.tool_calls", "[]"), json), "message 2 calls tools, and T has no place for calls");
  EXPECT_EQ(missing(whole_but("{{ tools | tojson if tools }}", ""), json),
            "\"tools\" is given, and T has no place for tools");
  EXPECT_EQ(missing(whole_but("{{ tools | tojson if tools }}", "{{ tools[0].function.parameters | tojson }}"), json),
            "T does not write all of the tool add before the first answer");
  EXPECT_EQ(missing(whole_but("{{ tools | tojson if tools }}", "") + "{{ tools | tojson }}", json),
            "T does not write all of the tool add before the first answer");
  EXPECT_EQ(missing(whole_but("tojson if", "tojson(sort_keys=true, ensure_ascii=true) if"), json), "");
}

TEST(ChatParts, ReasoningThatATemplateDropsIsCounted) {
  const std::string think = content("assistant", R"("<think>\nhm 4\n</think>\n\n4")");
  const std::string key = content("assistant", "\"5\"", R"(, "reasoning_content": "why 5", "reasoning": "why 5")");
  const std::string json = record(ask + ", " + think + ", " + ask + ", " + key + ", " + ask + ", " + think);
  const auto reasoning = [&](const std::string& text) {
    const ChatTokens tokens = Folder(text).format().encode(json, "x");
    EXPECT_EQ(tokens.missing, "");
    return tokens.reasoning;
  };
  EXPECT_EQ(reasoning(whole), 0);
  EXPECT_EQ(reasoning(whole_but("{{ m.reasoning_content }}", "")), 1);
  EXPECT_EQ(reasoning("{% for m in messages %}{{ m.content.split('</think>')[-1] }}{% endfor %}"), 3);
  // The text of an answer may also occur before it: "a" in the word "assistant", and the words of a call in the tool's
  // schema.
  const std::string a = content("assistant", "\"a\"", R"(, "reasoning_content": "a thought")");
  EXPECT_EQ(Folder().format("qwen3").encode(record(ask + ", " + a + ", " + ask + ", " + a), "x").reasoning, 0);
  EXPECT_EQ(
      Folder()
          .format("qwen3")
          .encode(record(ask + ", " + content("assistant", R"("<think>hm</think>")", called + "{}}}]"), tools), "x")
          .reasoning,
      0);
  EXPECT_EQ(missing("{% for m in messages %}{{ m.content.split('</think>')[0] }}{% endfor %}",
                    record(ask + ", " + content("assistant", "\"<think>r</think>b\""))),
            "T does not write the text of message 2");
}

/// Qwen3's own template (with other words before the tools), as in tests/text/make_chat_templates.py.
std::string qwen3_itself() {
  const auto read = nlohmann::json::parse(std::ifstream(TESSERA_TEST_DATA "/text/chat_templates.json"));
  return read.at("templates").at("qwen3");
}

TEST(ChatQwen3, EachAnswerIsWrittenAsTheFinalAnswerOfQwen3sTemplate) {
  const Folder folder(qwen3_itself());
  const ChatFormat itself = folder.format("auto", Learn::last), own = folder.format("qwen3"),
                   last = folder.format("qwen3", Learn::last);
  const std::string result = content("tool", "\"21\"");
  const auto says = [&](const std::string& json, const std::string& more = "") {
    return content("assistant", json, more);
  };
  const std::vector<std::vector<std::string>> conversations = {
      {ask, answer, ask, says("\"\\n\\nb\\n\""), ask, says("\"c\"", R"(, "reasoning_content": "\nwhy\n")")},
      {content("system", "\"s\""), ask, says(R"("<think>\nhm\n</think>\n\n4")"), ask, says(R"("r</think>5")")},
      {ask, says("\"\"", called + R"({"a": "é\""}}}, {"name": "f", "arguments": "{\"b\": 1}"}])"), result, result,
       says("\"look\"", called + R"({}}}])"), result, says("\"done\""), ask, says(R"("<think></think>x")")},
      {content("system", "\"s\""), answer, content("user", R"("<tool_response>\n1\n</tool_response>")"), answer, ask,
       answer}};
  for (const std::vector<std::string>& messages : conversations) {
    std::string prefix, expected;
    for (const std::string& message : messages) {
      prefix += (prefix.empty() ? "" : ", ") + message;
      if (!message.starts_with(R"({"role": "assistant")")) continue;
      const std::string one = learned(itself, record(prefix));
      EXPECT_EQ(learned(last, record(prefix)) + "\n", one) << prefix;
      expected += one.substr(0, one.size() - 1);
    }
    EXPECT_EQ(learned(own, record(prefix)), expected);
  }
  EXPECT_EQ(learned(own, record(chat, R"(, "chat_template_kwargs": {"enable_thinking": false})")), "a<|im_end|>");
  EXPECT_INPUT_ERROR(
      own.encode(record(ask + ", " + says("\"<think>r</think>x\"", R"(, "reasoning_content": "r")")), "x"),
      "an answer has its reasoning twice");
  EXPECT_INPUT_ERROR(own.encode(record(ask + ", " + says("\"<think>a</think>b<think>c</think>d\"")), "x"),
                     "the template qwen3 does not write the text of message 2");
}

TEST(ChatQwen3, ToolsAreWrittenBeforeTheQuestion) {
  EXPECT_EQ(
      all(Folder().format("qwen3"), record(content("system", "\"s\"") + ", " + chat, tools)),
      "<|im_start|>system\ns\n\n# Tools\n\nYou may call one or more functions to assist with the user query.\n\nYou "
      "are provided with function signatures within <tools></tools> XML tags:\n<tools>\n{\"type\": \"function\", "
      "\"function\": {\"name\": \"add\", \"description\": \"Sums \\\"two\\\" é\", \"parameters\": {\"type\": "
      "\"object\", \"properties\": {\"first\": {\"type\": \"number\", \"enum\": [\"one\", \"two\"]}}}}}\n</tools>\n\n"
      "For each function call, return a json object with function name and arguments within "
      "<tool_call></tool_call> XML tags:\n<tool_call>\n{\"name\": <function-name>, \"arguments\": "
      "<args-json-object>}\n</tool_call><|im_end|>\n<|im_start|>user\nq<|im_end|>\n<|im_start|>assistant\n<think>"
      "\n\n</think>\n\na<|im_end|>\n");
}

TEST(ChatLearn, LearnLastSupportsTemplatesThatRewriteEarlierAnswers) {
  const std::string two = record(chat + ", " + ask + ", " + content("assistant", "\"b\""));
  const Folder folder(qwen3_itself());
  EXPECT_INPUT_ERROR(
      folder.format().encode(two, "x"),
      "writes message 2 otherwise once others follow it, so that what the model is to write there is not "
      "known; learn the last answer alone by --learn last, mark earlier answers by \"weight\": 0, or give "
      "another --chat-template, such as qwen3 or chatml");
  EXPECT_EQ(learned(folder.format("auto", Learn::last), two), "<think>\n\n</think>\n\nb<|im_end|>\n");
  EXPECT_EQ(all(folder.format("auto", Learn::last), two.substr(0, two.size() - 2) + ", " + ask + "]}"),
            all(folder.format("auto", Learn::last), two));
  EXPECT_EQ(learned(folder.format("chatml", Learn::last), two), "b<|im_end|>");
  EXPECT_EQ(learned(folder.format("plain", Learn::last), R"({"prompt": "p", "completion": "c"})"), "c<|endoftext|>");
  EXPECT_INPUT_ERROR(
      folder.format("chatml", Learn::last)
          .encode(record(chat + ", " + ask + ", " + content("assistant", "\"b\"", R"(, "weight": 0)")), "x"),
      "holds no answer that is learned: the mark of its last one says so, and --learn is last");
  EXPECT_NE(folder.format("chatml", Learn::last).digest(), folder.format("chatml").digest());
}

}  // namespace
}  // namespace fsdp::text::chat_parts_test
