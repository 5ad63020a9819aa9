// SPDX-License-Identifier: Apache-2.0
#include "chat_row.hpp"

#include <algorithm>
#include <array>
#include <optional>
#include <utility>

#include <tessera/fsdp/core/error.hpp>
#include <tessera/fsdp/core/terminal_text.hpp>

#include "../fsdp/core/json/strict_json.hpp"
#include "../fsdp/core/strings.hpp"
#include "jinja/strings.hpp"

namespace fsdp::text {
namespace {

using Json = nlohmann::ordered_json;

// Keys of data that a text-only model cannot read, in a record or in a message.
constexpr std::array<std::string_view, 9> media_keys = {"image",     "images", "image_url", "video",      "videos",
                                                        "video_url", "audio",  "audios",    "input_audio"};

// Keys of texts that templates print. `tool_call_id` may also be an integer.
constexpr std::array<std::string_view, 2> text_keys = {"name", "tool_call_id"};

// Types of text parts in the formats of chat completions and of responses.
constexpr std::array<std::string_view, 3> text_types = {"text", "input_text", "output_text"};

std::string type_of(const Json& value) { return value.is_binary() ? "number" : value.type_name(); }

/// Removes all keys whose value is null: table formats store null for a column that is absent from a record.
void drop_nulls(Json& object) {
  auto& members = object.get_ref<Json::object_t&>();
  if (std::ranges::none_of(members, [](const auto& member) { return member.second.is_null(); })) return;
  Json::object_t kept;
  for (auto& [key, value] : members)  // emplace of an ordered_map searches all keys
    if (!value.is_null()) kept.Json::object_t::Container::emplace_back(key, std::move(value));
  members = std::move(kept);
}

/// Throws InputError if an object has images, videos, audio or files, or functions in OpenAI's older form.
void refuse_unsupported_keys(const Json& object, const std::string& where) {
  for (const std::string_view key : media_keys) {
    const auto found = object.find(key);
    const bool given = found != object.end() && !found->is_null() && !found->empty() && *found != "";
    require<InputError>(!given, where, " has \"", key,
                        "\", and the model reads text alone; leave the key or the record out");
  }
  for (const char* key : {"functions", "function_call"}) {
    const auto found = object.find(key);
    require<InputError>(found == object.end() || found->empty(), where, " has \"", key,
                        "\", which templates do not read; ", "write it as \"",
                        key == std::string_view("functions") ? "tools" : "tool_calls", "\"");
  }
}

void check_call(Json& call, const std::string& where) {
  require<InputError>(call.is_object(), where, " is of the type ", type_of(call), ", and must be an object");
  drop_nulls(call);
  const bool wrapped = call.contains("function");
  Json& function = wrapped ? call.at("function") : call;
  require<InputError>(function.is_object(), where, ": \"function\" is of the type ", type_of(function),
                      ", and must be an object");
  if (wrapped) drop_nulls(function);
  const auto name = function.find("name");
  require<InputError>(name != function.end() && name->is_string() && !name->get_ref<const std::string&>().empty(),
                      where, " has no \"name\"; give it the tool's name");
  const auto arguments = function.find("arguments");
  require<InputError>(
      arguments != function.end() && (arguments->is_string() || arguments->is_object()), where,
      arguments == function.end() ? " has no \"arguments\"" : " has \"arguments\" of the type " + type_of(*arguments),
      "; give them as an object, or as the text of one, such as \"{}\"");
}

void check_part(Json& part, const std::string& where) {
  require<InputError>(part.is_object(), where, " is of the type ", type_of(part),
                      R"(, and must be an object {"type": "text", "text": "..."})");
  drop_nulls(part);
  refuse_unsupported_keys(part, where);
  const auto type = part.find("type");
  const bool known =
      type == part.end() ||
      (type->is_string() && std::ranges::find(text_types, type->get_ref<const std::string&>()) != text_types.end());
  require<InputError>(known, where, " is of the type ", shortened(type == part.end() ? "" : json_text(*type)),
                      ", and the model reads text alone; leave the record out, or write its content as text");
  const auto text = part.find("text");
  require<InputError>(text != part.end() && text->is_string(), where, " has no \"text\"");
}

/// Checks one message with a role. Afterwards its content is a text or a list of objects with "type" and "text", its
/// calls have names and arguments, and no key that a template may print is null. Null or absent content becomes the
/// empty text if the message calls tools. Throws InputError "`where` ...".
void check_message(Json& message, const std::string& where) {
  const bool is_null = message.contains("content") && message.at("content").is_null();
  drop_nulls(message);
  refuse_unsupported_keys(message, where);
  const auto require_text = [&](std::string_view key, bool number) {
    const auto found = message.find(key);
    require<InputError>(found == message.end() || found->is_string() || (number && found->is_number_integer()), where,
                        " has \"", key, "\" of the type ", found == message.end() ? "" : type_of(*found),
                        ", and it must be a text");
  };
  for (const std::string_view key : text_keys) require_text(key, key == "tool_call_id");
  for (const std::string_view key : reasoning_keys) require_text(key, false);
  if (const auto calls = message.find("tool_calls"); calls != message.end()) {
    require<InputError>(calls->is_array(), where, " has \"tool_calls\" of the type ", type_of(*calls),
                        ", and they must be a list");
    for (std::size_t i = 0; i < calls->size(); ++i) check_call((*calls)[i], fsdp::message(where, ": call ", i + 1));
    if (calls->empty()) message.erase("tool_calls");  // templates test whether the key exists
  }
  if (!message.contains("content")) {
    require<InputError>(calls_tools(message), where, is_null ? " has \"content\" that is null" : " has no \"content\"",
                        ", and calls no tool; give it a text, or leave the record out");
    message["content"] = "";
    return;
  }
  Json& content = message.at("content");
  if (content.is_string()) return;
  require<InputError>(content.is_array(), where, " has \"content\" of the type ", type_of(content),
                      ", and it must be a text, or a list of text parts");
  for (std::size_t i = 0; i < content.size(); ++i)
    check_part(content[i], fsdp::message(where, ": part ", i + 1, " of \"content\""));
}

constexpr JsonLimits row_limits{
    .depth = 64, .values = 1'000'000, .array = 100'000, .text = 100'000'000, .keep_digits = true};

// Training marks of other trainers: OpenAI's and Mistral's "weight", axolotl's "train" or "training", ms-swift's
// "loss". If the value is 0 or false, the answer is context and is not learned.
constexpr std::array<std::string_view, 4> marks = {"weight", "train", "training", "loss"};

// Words in keys that select the training targets in other trainers, such as "train_detail", "loss_mask", "masked".
constexpr std::array<std::string_view, 14> words_of_marks = {"train",  "training", "trained",   "trainable", "loss",
                                                             "weight", "weights",  "weighting", "mask",      "masks",
                                                             "masked", "learn",    "learned",   "learnable"};

// Words in keys that select the training targets if the value is a switch ("skip": true), but not if it is a text
// ("label": "greeting").
constexpr std::array<std::string_view, 18> words_of_switches = {
    "masking", "learning", "untrained", "unmasked", "grad",     "supervise", "supervised", "unsupervised", "ignore",
    "ignored", "skip",     "skipped",   "exclude",  "excluded", "include",   "included",   "label",        "labels"};

// Roles that other formats give to answers; only "assistant" is learned.
constexpr std::array<std::string_view, 6> roles_of_answers = {"assistant", "gpt", "chatgpt", "bot", "model", "ai"};

// Keys that contain a system message next to the messages.
constexpr std::array<std::string_view, 3> system_keys = {"system", "system_prompt", "system_message"};

// Forms of other trainers: a key that contains a conversation, or two keys that together contain one.
constexpr std::array<std::pair<std::string_view, std::string_view>, 6> other_forms = {{{"conversations", ""},
                                                                                       {"conversation", ""},
                                                                                       {"dialogue", ""},
                                                                                       {"dialog", ""},
                                                                                       {"instruction", "output"},
                                                                                       {"instruction", "response"}}};

bool is_mark(std::string_view key) { return std::ranges::find(marks, key) != marks.end(); }

/// Returns whether a key has one of these words: "loss_mask", "lossMask", "train-on-inputs", but not "constraint".
bool has_word_of(std::span<const std::string_view> words, std::string_view key) {
  const auto is_upper = [](char c) { return c >= 'A' && c <= 'Z'; };
  const auto is_lower = [](char c) { return c >= 'a' && c <= 'z'; };
  std::string word;
  for (std::size_t i = 0; i <= key.size(); ++i) {
    const char c = i < key.size() ? key[i] : '_';
    const bool begins_word = is_upper(c) && i > 0 && is_lower(key[i - 1]);
    if (begins_word || (!is_upper(c) && !is_lower(c))) {
      if (std::ranges::find(words, word) != words.end()) return true;
      word.clear();
    }
    if (is_upper(c)) word += ascii_lower(c);
    if (is_lower(c)) word += c;
  }
  return false;
}

/// Returns whether a value can be a switch: true, 0.5, "1", "false", or a list of such values.
bool is_switch(const Json& value) {
  constexpr std::array<std::string_view, 8> texts = {"0", "1", "true", "false", "yes", "no", "on", "off"};
  if (value.is_string())
    return std::ranges::find(texts, ascii_lower(value.get_ref<const std::string&>())) != texts.end();
  if (value.is_array())
    return std::ranges::any_of(value, [](const Json& one) { return one.is_boolean() || one.is_number(); });
  return value.is_boolean() || value.is_number() || value.is_binary();
}

/// Returns whether a key next to the messages may be plain data that does not select the training targets.
bool is_data(const Json& value, std::string_view key) {
  if (value.is_null()) return true;
  const bool is_one_word = std::ranges::find(words_of_marks, ascii_lower(std::string(key))) != words_of_marks.end();
  if (is_one_word || key.starts_with("train_on_")) return false;
  return value.is_object() || (value.is_string() && !is_switch(value));
}

/// Returns the value of a training mark: true if the message is learned; nothing for null. Throws InputError for an
/// invalid value.
std::optional<bool> mark_of(const Json& value, std::string_view key, const std::string& where) {
  if (value.is_null()) return std::nullopt;  // `datasets` writes null for a missing key
  if (value.is_boolean()) return value.get<bool>();
  const bool known = value.is_number() && (value == 0 || value == 1);
  require<InputError>(known, where, " has \"", key, "\" of ", shortened(value.is_binary() ? "?" : json_text(value)),
                      "; it may be 0 or false (not learned), and 1 or true (learned)");
  return value == 1;
}

/// Reads a message's training marks and removes them. Returns whether its answer is learned.
bool take_marks(Json& message, const std::string& where) {
  std::optional<bool> learned;
  std::string_view by;
  for (const std::string_view key : marks) {
    if (!message.contains(key)) continue;
    const std::optional<bool> mark = mark_of(message.at(key), key, where);
    message.erase(std::string(key));
    if (!mark) continue;
    require<InputError>(!learned || *learned == *mark, where, " has \"", by, "\" and \"", key,
                        "\", which differ; leave one of them out");
    require<InputError>(!*mark || is_answer(message), where, " of the role ",
                        shortened(message.at("role").get<std::string>()), " has \"", key,
                        "\", which asks to learn it, and only answers (the role assistant) are learned; leave it out");
    learned = mark;
    by = key;
  }
  for (const auto& [key, value] : message.items()) {
    const bool says = has_word_of(words_of_marks, key) || (is_switch(value) && has_word_of(words_of_switches, key));
    require<InputError>(value.is_null() || !says, where, " has \"", shortened(key),
                        "\", which is not known and may say what is learned; leave it out, or mark answers by ",
                        "\"weight\": 0");
  }
  return learned.value_or(true);
}

/// Throws InputError for a key next to the messages that selects other training targets.
void refuse_record_marks(const Json& root, const std::string& source) {
  for (const auto& [key, value] : root.items()) {
    if (is_data(value, key) || !has_word_of(words_of_marks, key)) continue;
    const bool usual = is_mark(key) && (value.is_boolean() ? value.get<bool>() : value.is_number() && value == 1);
    const bool measured = key == "loss" && value.is_number_float();  // the loss of another model
    const bool only_answers = key.starts_with("train_on_") && value == false;
    require<InputError>(usual || measured || only_answers, source, ": has \"", shortened(key),
                        "\", which is not known and may say what is learned; leave the key or the record out, or mark ",
                        "answers by \"weight\": 0 in their messages");
  }
}

void check_list(const Json& messages, std::string_view name, const std::string& source) {
  require<InputError>(messages.is_array() && !messages.empty(), source, ": \"", name, "\" is not a list of messages");
  for (std::size_t i = 0; i < messages.size(); ++i)
    require<InputError>(value_at<std::string_view>(messages[i], "role").has_value(), source, ": message ", i + 1,
                        " of \"", name, "\" has no \"role\"");
}

/// Collects the optional keys of a message, which templates may ignore. Throws InputError for a training mark in a part
/// of its content.
void collect_keys(const Json& message, const std::string& where, std::set<std::string>& keys) {
  constexpr std::array<std::string_view, 3> known = {"role", "content", "tool_calls"};
  for (const auto& [key, value] : message.items())
    if (std::ranges::find(known, key) == known.end() &&
        std::ranges::find(reasoning_keys, key) == std::end(reasoning_keys))
      keys.insert(key);
  if (!message.at("content").is_array()) return;
  for (const Json& part : message.at("content")) {
    for (const auto& [key, value] : part.items()) {
      require<InputError>(!has_word_of(words_of_marks, key), where, " has \"", shortened(key),
                          "\" in a part of its content, which ",
                          "is not known and may say what is learned; leave it out, or mark answers by \"weight\": 0");
      if (key != "type" && key != "text") keys.insert("content." + key);
    }
  }
}

/// Appends a list of messages. `answers`: whether answers in the list are learned.
void append_messages(const Json& messages, std::string_view name, bool answers, const std::string& source,
                     ChatRow& row) {
  check_list(messages, name, source);
  const bool has_answers = std::ranges::any_of(messages, is_answer);
  for (const Json& each : messages) {
    Json one = each;
    const std::string where = message(source, ": message ", row.number(row.messages.size()));
    check_message(one, where);
    const bool learned = take_marks(one, where);
    collect_keys(one, where, row.message_keys);
    const std::string role = one.at("role");
    const bool is_other = answers && learned && has_answers && !is_answer(one) &&
                          std::ranges::find(roles_of_answers, ascii_lower(role)) != roles_of_answers.end();
    require<InputError>(!is_other, where, " of the role ", shortened(role), " stands beside answers of the role ",
                        "assistant, and only these are learned; name its role assistant, or mark it by \"weight\": 0");
    row.learned.push_back(answers && learned && is_answer(one));
    row.messages.push_back(std::move(one));
  }
}

/// Returns the keys of a record's form. Throws InputError if the record has no form or two forms.
std::vector<std::string_view> form_of(const Json& root, const std::string& source) {
  const bool messages = root.contains("messages"), pair = root.contains("prompt") && root.contains("completion");
  const auto given = [&](std::string_view key) {  // an empty column is not a second form
    const auto found = root.find(key);
    return found != root.end() && !found->empty() && *found != "";
  };
  std::string_view other = messages && given("completion") ? "completion" : "";
  for (const auto& [one, two] : other_forms)
    if (given(one) && (two.empty() || given(two))) other = one;
  require<InputError>(messages || pair, source, ": has neither \"messages\" nor \"prompt\" and \"completion\"",
                      other == "instruction" ? R"(; write its "instruction" as "prompt", and the rest as "completion")"
                      : other.empty()        ? ""
                                             : message("; write its \"", other, "\" as \"messages\", each with ",
                                                       "\"role\" (user, assistant) and \"content\""));
  require<InputError>(other.empty(), source, ": has \"", messages ? "messages" : "prompt", "\" and \"", other,
                      "\", two forms of a conversation; leave one of them out");
  if (messages) return {"messages"};
  return {"prompt", "completion"};
}

/// Returns the text of the system message that a record stores next to its messages; nothing if it has none.
std::optional<std::string> system_text(const Json& root, const std::string& source) {
  std::optional<std::string> text;
  for (const std::string_view key : system_keys) {
    const auto found = root.find(key);
    if (found == root.end() || *found == "") continue;
    require<InputError>(found->is_string(), source, ": \"", key, "\" is not a text; write it as a message");
    require<InputError>(!text || *text == found->get_ref<const std::string&>(), source,
                        ": has two system messages, one of them \"", key, "\"; leave one of them out");
    text = *found;
  }
  return text;
}

/// Inserts a system message before the others, unless the first of them is the same message.
void append_system(const std::optional<std::string>& system, const Json& messages, const std::string& source,
                   ChatRow& row) {
  if (!system) return;
  const auto first = [&](const char* key) {
    return messages.is_array() && !messages.empty() ? value_at<std::string_view>(messages[0], key) : std::nullopt;
  };
  if (first("role") == "system" || first("role") == "developer") {
    require<InputError>(first("content") == *system, source,
                        ": has a system message next to the messages, and another one as the first of them; leave one ",
                        "of them out");
    return;
  }
  row.messages.push_back({{"role", "system"}, {"content", *system}});
  row.learned.push_back(false);
  row.added = 1;
}

}  // namespace

bool calls_tools(const Json& message) {
  const auto calls = message.find("tool_calls");
  return calls != message.end() && !calls->empty();
}

bool is_answer(const Json& message) { return message.at("role") == "assistant"; }

ChatRow ChatRow::of(std::string_view json, const std::string& source) {
  Json root = parse_strict_ordered(json, source, row_limits);
  require<InputError>(root.is_object(), source, ": is not a JSON object");
  drop_nulls(root);
  if (root.contains("tools") && root.at("tools") == Json::array()) root.erase("tools");
  refuse_record_marks(root, source);
  refuse_unsupported_keys(root, source + ":");
  const std::vector<std::string_view> form = form_of(root, source);
  ChatRow row;
  const std::optional<std::string> system = system_text(root, source);
  if (form.front() == "messages") {
    append_system(system, root.at("messages"), source, row);
    append_messages(root.at("messages"), "messages", true, source, row);
  } else {
    const Json &prompt = root.at("prompt"), &completion = root.at("completion");
    row.is_text = prompt.is_string();
    require<InputError>(row.is_text == completion.is_string(), source,
                        ": one of \"prompt\" and \"completion\" is a text, and the other is none");
    if (row.is_text) {
      require<InputError>(
          !system && !root.contains("tools"), source, ": has \"", system ? "system" : "tools",
          "\" next to a \"prompt\" that is a text, which no template writes; write it into the prompt, ",
          "or \"prompt\" and \"completion\" as lists of messages");
      row.prompt = prompt;
      row.completion = completion;
    } else {
      append_system(system, prompt, source, row);
      append_messages(prompt, "prompt", false, source, row);
      append_messages(completion, "completion", true, source, row);
    }
  }
  if (root.contains("tools")) row.tools = root.at("tools");
  if (!row.is_text && root.contains("chat_template_kwargs")) row.more = root.at("chat_template_kwargs");
  require<InputError>(row.tools.is_null() || row.tools.is_array(), source, ": \"tools\" is not a list");
  for (std::size_t i = 0; i < row.tools.size(); ++i)
    require<InputError>(row.tools[i].is_object(), source, ": tool ", i + 1, " of \"tools\" is not an object");
  require<InputError>(row.more.is_object(), source, ": \"chat_template_kwargs\" is not an object");
  for (const char* key : {"messages", "tools", "documents", "add_generation_prompt"})
    require<InputError>(!row.more.contains(key), source, ": \"chat_template_kwargs\" has \"", key,
                        "\", which is set for the template otherwise; leave it out");
  for (const auto& [key, value] : root.items()) {
    const bool read = std::ranges::find(form, key) != form.end() || key == "tools" || is_mark(key) ||
                      (key == "chat_template_kwargs" && !row.is_text) ||
                      std::ranges::find(system_keys, key) != system_keys.end();
    if (!read) row.unread.push_back(key);
  }
  return row;
}

ChatRow ChatRow::asking(std::string_view messages) {
  ChatRow row{.asks = true};
  append_messages(parse_strict_ordered(messages, "messages", row_limits), "messages", false, "the conversation", row);
  return row;
}

}  // namespace fsdp::text
