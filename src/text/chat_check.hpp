// SPDX-License-Identifier: Apache-2.0
/// @file
/// Checks that a template has written all of a conversation.
#pragma once

#include <cstddef>
#include <span>
#include <string>
#include <string_view>

#include <tessera/text/chat_template.hpp>

#include "chat_row.hpp"

namespace fsdp::text {

/// Which part of a conversation the rendered text lacks.
struct MissingPart {
  enum class Kind : std::uint8_t { none, text, call, tool };
  Kind kind = Kind::none;
  std::size_t message = 0;    ///< the message's number in the record, from 1; 0 for a tool
  std::string name = {};      ///< of the tool or the called tool
  std::size_t reasoning = 0;  ///< number of answers whose reasoning the text lacks, as a template may intend
};

/// Looks for the conversation's parts in the rendered text. In the order of the messages: their texts without white
/// space at both ends, and their calls, each with its name and the strings of its arguments. Before `front`, the place
/// of the first answer, in any order: the names and strings of the tools' schemas. Texts are also found where the
/// template has escaped them as JSON, once or twice. `learned`: the places of the answers that are learned; empty if
/// they are not known. Takes time proportional to the conversation and the text.
MissingPart missing_part(const ChatRow& row, std::string_view text, std::size_t front,
                         std::span<const TextRange> learned);

/// Returns whether a message has neither text nor calls. `reasoning`: reasoning counts as text.
bool is_empty(const nlohmann::ordered_json& message, bool reasoning);

/// Returns whether the text has, in their order, all parts of contents that are lists.
bool has_all_parts(const ChatRow& row, std::string_view text);

}  // namespace fsdp::text
