// SPDX-License-Identifier: Apache-2.0
/// @file
/// A conversation of the training data: reads and checks its record and messages, and searches a rendered text for
/// them.
#pragma once

#include <cstddef>
#include <set>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include <nlohmann/json.hpp>

#include <tessera/text/chat_template.hpp>

namespace fsdp::text {

/// A record of one of the forms that ChatFormat::encode reads.
struct ChatRow {
  nlohmann::ordered_json messages = nlohmann::ordered_json::array();  ///< without training marks such as "weight"
  nlohmann::ordered_json tools = nullptr;
  nlohmann::ordered_json more = nlohmann::ordered_json::object();  ///< chat_template_kwargs
  std::vector<bool> learned = {};                                  ///< for each message: whether it is a learned answer
  bool asks = false;     ///< value of add_generation_prompt: the messages ask for an answer
  bool is_text = false;  ///< `prompt` and `completion` are texts; there are no messages
  std::string prompt = {}, completion = {};
  std::size_t added = 0;  ///< number of messages inserted before the record's messages: 1 for its "system", else 0
  std::vector<std::string> unread = {};     ///< keys of the record that do not belong to its form
  std::set<std::string> message_keys = {};  ///< optional keys of messages, which a template may ignore

  /// Returns the number of message i in the record, from 1.
  std::size_t number(std::size_t i) const { return i + 1 - added; }

  /// Parses and checks a record. Throws InputError "`source`: ...".
  static ChatRow of(std::string_view json, const std::string& source);
  /// Parses messages, a JSON array, that ask for an answer.
  static ChatRow asking(std::string_view messages);
};

/// Returns whether a message is an answer: of the role assistant.
bool is_answer(const nlohmann::ordered_json& message);

/// Returns whether a message calls tools.
bool calls_tools(const nlohmann::ordered_json& message);

/// Keys of a message that contain an answer's reasoning.
inline constexpr std::string_view reasoning_keys[] = {"reasoning_content", "reasoning", "thinking"};

/// The first part of a conversation that is absent from the rendered text.
struct MissingPart {
  enum class Kind : std::uint8_t { none, text, call, tool };
  Kind kind = Kind::none;
  std::size_t message = 0;    ///< the message's number in the record, from 1; 0 for a tool
  std::string name = {};      ///< name of the tool or of the called tool
  std::size_t reasoning = 0;  ///< number of answers whose reasoning is absent, which may be intended by the template
};

/// Searches the rendered text for the conversation's parts. In the order of the messages, it must contain their texts,
/// stripped of white space at both ends, and their calls, each with its name and the strings of its arguments. Before
/// `front`, the offset of the first answer, it must contain the names and strings of the tools' schemas, in any order.
/// Texts are also found if the template has escaped them as JSON, once or twice. `learned`: the byte ranges of the
/// learned answers; empty if they are not known. Takes time linear in the sizes of the conversation and the text.
MissingPart missing_part(const ChatRow& row, std::string_view text, std::size_t front,
                         std::span<const TextRange> learned);

/// Returns whether a message has neither text nor calls. `reasoning`: reasoning counts as text.
bool is_empty(const nlohmann::ordered_json& message, bool reasoning);

/// Returns whether the text contains, in order, all parts of the contents that are lists.
bool has_all_parts(const ChatRow& row, std::string_view text);

}  // namespace fsdp::text
