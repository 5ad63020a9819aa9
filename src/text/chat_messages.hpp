// SPDX-License-Identifier: Apache-2.0
/// @file
/// Checks the types in a conversation's messages before the messages are rendered by a template.
#pragma once

#include <string>
#include <string_view>

#include <nlohmann/json.hpp>

namespace fsdp::text {

/// Removes all keys whose value is null: table formats store null for a column that is absent from a record.
void drop_nulls(nlohmann::ordered_json& object);

/// Throws InputError if an object has images, videos, audio or files, or functions in OpenAI's older form.
void refuse_unsupported_keys(const nlohmann::ordered_json& object, const std::string& where);

/// Checks one message with a role. Afterwards its content is a text or a list of objects with "type" and "text", its
/// calls have names and arguments, and no key that a template may print is null. Null or absent content becomes the
/// empty text if the message calls tools. Throws InputError "`where` ...".
void check_message(nlohmann::ordered_json& message, const std::string& where);

/// Returns whether a message calls tools.
bool calls_tools(const nlohmann::ordered_json& message);

/// Replaces content that is a list of text parts by the concatenation of their texts.
void join_parts(nlohmann::ordered_json& message);

/// Keys of a message that contain an answer's reasoning.
inline constexpr std::string_view reasoning_keys[] = {"reasoning_content", "reasoning", "thinking"};

}  // namespace fsdp::text
