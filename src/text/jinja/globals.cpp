// SPDX-License-Identifier: Apache-2.0
/// @file
/// Global functions of chat templates.
#include <array>
#include <ctime>

#include "builtins.hpp"
#include "runner.hpp"

namespace fsdp::text::jinja {
namespace {

Value range(Runner&, Given arguments) {
  const Bound bound("range", arguments, {"start", "stop", "step"}, 1);
  const bool one = bound[1] == nullptr;
  const std::int64_t begin = one ? 0 : bound.integer(0, 0), end = bound.integer(one ? 0 : 1, 0);
  const std::int64_t step = bound.integer(2, 1);
  if (step == 0) refuse("range: the step is 0");
  std::vector<Value> items;
  for (std::int64_t i = begin; step > 0 ? i < end : i > end;) {
    if (static_cast<std::int64_t>(items.size()) == most_range) refuse("range: has more than ", most_range, " numbers");
    items.emplace_back(i);
    if (__builtin_add_overflow(i, step, &i)) break;
  }
  return Value::list(std::move(items));
}

Dict named_values(std::string_view function, Given arguments) {
  Dict dict;
  if (arguments.positional.size() > 1) refuse(function, ": takes one dict and names");
  for (const Value& from : arguments.positional) {
    if (from.as_dict() == nullptr) refuse(function, ": ", from.kind_name(), " is no dict");
    spend(from.as_dict()->items.size());
    dict.items = from.as_dict()->items;
  }
  for (const auto& [name, value] : arguments.named) dict.set(name, value);
  return dict;
}

Value make_dict(Runner&, Given arguments) { return Value::dict(named_values("dict", arguments)); }

Value make_namespace(Runner& runner, Given arguments) {
  return runner.make_namespace(named_values("namespace", arguments));
}

Value raise_exception(Runner&, Given arguments) {
  refuse("the template refuses the conversation: ", Bound("raise_exception", arguments, {"message"}, 1)[0]->text());
}

Value strftime_now(Runner& runner, Given arguments) {
  const std::string format = Bound("strftime_now", arguments, {"format"}, 1).text(0, "");
  std::array<char, 1000> room{};
  const std::size_t length = std::strftime(room.data(), room.size(), format.c_str(), &runner.clock());
  return std::string(room.data(), length);
}

}  // namespace

std::optional<Value> global(const std::string& name) {
  using Call = Value (*)(Runner&, Given);
  const Call call = name == "range"             ? range
                    : name == "dict"            ? make_dict
                    : name == "namespace"       ? make_namespace
                    : name == "raise_exception" ? raise_exception
                    : name == "strftime_now"    ? strftime_now
                                                : nullptr;
  if (call == nullptr) return std::nullopt;
  return Value(std::make_shared<const Function>(Function{name, call}));
}

}  // namespace fsdp::text::jinja
