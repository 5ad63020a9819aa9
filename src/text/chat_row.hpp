// SPDX-License-Identifier: Apache-2.0
/// @file
/// A parsed and checked conversation of the training data: its messages, and for each whether it is learned.
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

}  // namespace fsdp::text
