// SPDX-License-Identifier: Apache-2.0
#include <tessera/fsdp/core/named_values.hpp>

#include <sstream>
#include <utility>

namespace fsdp {

void ValueList::add(NamedValue value) { list.push_back(std::move(value)); }

std::vector<NamedValue> NamedValues::list() const {
  ValueList all;
  visit_(visited_, all);
  return std::move(all.list);
}

std::string text_of(const ConfigValue& value) {
  std::ostringstream text;
  text << std::boolalpha;
  std::visit([&](const auto& each) { text << each; }, value.value);
  return text.str();
}

ConfigValues copies_of(const NamedValues& values) {
  ConfigValues copies;
  for (const NamedValue& each : values.list())
    std::visit([&](const auto* value) { copies.push_back({each.name, *value}); }, each.value);
  return copies;
}

}  // namespace fsdp
