// SPDX-License-Identifier: Apache-2.0
/// @file
/// A parsed and checked conversation of the data: its messages, and which of them are learned.
#pragma once

#include <cstddef>
#include <set>
#include <string>
#include <string_view>
#include <vector>

#include <nlohmann/json.hpp>

namespace fsdp::text {

/// A record of one of the forms that ChatFormat::encode reads.
struct ChatRow {
  nlohmann::ordered_json messages = nlohmann::ordered_json::array();  ///< without marks
  nlohmann::ordered_json tools = nullptr;
  nlohmann::ordered_json more = nlohmann::ordered_json::object();  ///< chat_template_kwargs
  std::vector<bool> learned = {};  ///< for each message: whether it is an answer that is learned
  bool asks = false;               ///< add_generation_prompt
  bool is_text = false;            ///< `prompt` and `completion` are texts; there are no messages
  std::string prompt = {}, completion = {};
  std::size_t added = 0;                    ///< messages before those of the record: 1 for its "system"
  std::vector<std::string> unread = {};     ///< keys of the record that no form of it has
  std::set<std::string> message_keys = {};  ///< keys of messages that a template may read or not

  /// Returns the number of message i in the record, from 1.
  std::size_t number(std::size_t i) const { return i + 1 - added; }

  /// Throws InputError "`source`: ...".
  static ChatRow of(std::string_view json, const std::string& source);
  /// A list of messages that ask for an answer.
  static ChatRow asking(std::string_view messages);
};

/// Returns whether a message is an answer: of the role assistant.
bool is_answer(const nlohmann::ordered_json& message);

}  // namespace fsdp::text
