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

ConfigValue copy_of(const NamedValue& value) {
  return std::visit(
      [&]<class T>(const T& held) {
        if constexpr (std::is_same_v<T, NamedChoice>)
          return ConfigValue{value.name, std::string(held.names[*held.index])};
        else
          return ConfigValue{value.name, *held};
      },
      value.value);
}

ConfigValues copies_of(const NamedValues& values) {
  ConfigValues copies;
  for (const NamedValue& each : values.list()) copies.push_back(copy_of(each));
  return copies;
}

}  // namespace fsdp
