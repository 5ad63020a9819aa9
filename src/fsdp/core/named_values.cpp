// SPDX-License-Identifier: Apache-2.0
#include <tessera/fsdp/core/named_values.hpp>

#include <utility>

namespace fsdp {

void ValueList::operator()(std::string_view name, std::int64_t& value, std::string_view help) {
  list_.push_back({std::string(name), std::string(help), &value});
}
void ValueList::operator()(std::string_view name, double& value, std::string_view help) {
  list_.push_back({std::string(name), std::string(help), &value});
}
void ValueList::operator()(std::string_view name, bool& value, std::string_view help) {
  list_.push_back({std::string(name), std::string(help), &value});
}
void ValueList::operator()(std::string_view name, std::string& value, std::string_view help) {
  list_.push_back({std::string(name), std::string(help), &value});
}

std::vector<NamedValue> NamedValues::list() const {
  ValueList all;
  visit_(visited_, all);
  return std::move(all.list_);
}

}  // namespace fsdp
