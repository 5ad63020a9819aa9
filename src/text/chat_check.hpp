// SPDX-License-Identifier: Apache-2.0
/// @file
/// Checks that a rendered text contains all parts of its conversation.
#pragma once

#include <cstddef>
#include <span>
#include <string>
#include <string_view>

#include <tessera/text/chat_template.hpp>

#include "chat_row.hpp"

namespace fsdp::text {

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
