// SPDX-License-Identifier: Apache-2.0
#include <tessera/fsdp/core/named_values.hpp>

#include <utility>

namespace fsdp {

void ValueList::add(NamedValue value) { list_.push_back(std::move(value)); }

std::vector<NamedValue> NamedValues::list() const {
  ValueList all;
  visit_(visited_, all);
  return std::move(all.list_);
}

}  // namespace fsdp
