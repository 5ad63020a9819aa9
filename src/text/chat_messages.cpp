// SPDX-License-Identifier: Apache-2.0
#include "chat_row.hpp"

#include <algorithm>
#include <array>
#include <utility>

#include <tessera/fsdp/core/error.hpp>
#include <tessera/fsdp/core/terminal_text.hpp>

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
  require<InputError>(known, where, " is of the type ", shortened(type == part.end() ? "" : type->dump()),
                      ", and the model reads text alone; leave the record out, or write its content as text");
  const auto text = part.find("text");
  require<InputError>(text != part.end() && text->is_string(), where, " has no \"text\"");
}

}  // namespace

void drop_nulls(Json& object) {
  auto& members = object.get_ref<Json::object_t&>();
  if (std::ranges::none_of(members, [](const auto& member) { return member.second.is_null(); })) return;
  Json::object_t kept;
  for (auto& [key, value] : members)  // emplace of an ordered_map searches all keys
    if (!value.is_null()) kept.Json::object_t::Container::emplace_back(key, std::move(value));
  members = std::move(kept);
}

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

bool calls_tools(const Json& message) {
  const auto calls = message.find("tool_calls");
  return calls != message.end() && !calls->empty();
}

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

void join_parts(Json& message) {
  Json& content = message.at("content");
  if (!content.is_array()) return;
  std::string text;
  for (const Json& part : content) text += part.at("text").get_ref<const std::string&>();
  content = std::move(text);
}

}  // namespace fsdp::text
