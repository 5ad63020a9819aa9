// SPDX-License-Identifier: Apache-2.0
/// @file
/// Filters of lists.
#pragma once

#include <map>
#include <string>

#include "value.hpp"

namespace fsdp::text::jinja {

using FilterFunction = Value (*)(Runner& runner, const Value& of, const CallArguments& arguments);

const std::map<std::string, FilterFunction, std::less<>>& list_filters();

}  // namespace fsdp::text::jinja
