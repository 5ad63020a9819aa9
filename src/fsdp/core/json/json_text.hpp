// SPDX-License-Identifier: Apache-2.0
/// @file
/// JSON values as text, text as values, and objects by their members. A source that calls `dump` or `parse` of
/// nlohmann-json compiles all of its serializer or its parser; these functions are compiled once.
#pragma once

#include <initializer_list>
#include <string>
#include <string_view>

#include <nlohmann/json.hpp>

namespace fsdp {

/// Return a value in one line; bytes that are not UTF-8, such as in paths, become U+FFFD. `ascii`: escapes all
/// characters that are not ASCII.
/// @{
std::string json_text(const nlohmann::json& value, bool ascii = false);
std::string json_text(const nlohmann::ordered_json& value);
/// @}

struct JsonMember {
  const char* key = nullptr;
  nlohmann::ordered_json value;
};
/// Returns an object with these members, in order. A braced list that nlohmann-json reads takes two to four times
/// as much code.
nlohmann::ordered_json json_object(std::initializer_list<JsonMember> members);
std::string object_text(std::initializer_list<JsonMember> members);  ///< json_text of such an object

/// Returns the value of a text; a discarded value if the text is not JSON. For JSON that this program wrote, and for
/// single lines; files of others are read by parse_strict (strict_json.hpp).
nlohmann::ordered_json json_value(std::string_view text);

}  // namespace fsdp
