// SPDX-License-Identifier: Apache-2.0
#include "json_text.hpp"

namespace fsdp {

std::string json_text(const nlohmann::json& value, bool ascii) {
  return value.dump(-1, ' ', ascii, nlohmann::json::error_handler_t::replace);
}

std::string json_text(const nlohmann::ordered_json& value) {
  return value.dump(-1, ' ', false, nlohmann::ordered_json::error_handler_t::replace);
}

nlohmann::ordered_json json_object(std::initializer_list<JsonMember> members) {
  auto object = nlohmann::ordered_json::object();
  for (const JsonMember& member : members) object[member.key] = member.value;
  return object;
}

std::string object_text(std::initializer_list<JsonMember> members) { return json_text(json_object(members)); }

nlohmann::ordered_json json_value(std::string_view text) {
  return nlohmann::ordered_json::parse(text.begin(), text.end(), nullptr, false);
}

}  // namespace fsdp
