// SPDX-License-Identifier: Apache-2.0
/// @file
/// Global functions of chat templates.
#include <array>
#include <ctime>

#include "builtins.hpp"
#include "runner.hpp"

namespace fsdp::text::jinja {
namespace {

Value range(Runner&, const Value&, const Bound& given) {
  const bool one = given[1] == nullptr;
  const std::int64_t begin = one ? 0 : given.integer(0, 0), end = given.integer(one ? 0 : 1, 0);
  const std::int64_t step = given.integer(2, 1);
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

Value make_dict(Runner&, const Value&, const Bound& given) { return Value::dict(named_values("dict", given.all())); }

Value make_namespace(Runner& runner, const Value&, const Bound& given) {
  return runner.make_namespace(named_values("namespace", given.all()));
}

Value raise_exception(Runner&, const Value&, const Bound& given) {
  refuse("the template refuses the conversation: ", given[0]->text());
}

Value strftime_now(Runner& runner, const Value&, const Bound& given) {
  const std::string format = given.text(0, "");
  std::array<char, 1000> room{};
  const std::size_t length = std::strftime(room.data(), room.size(), format.c_str(), &runner.clock());
  return std::string(room.data(), length);
}

}  // namespace

std::optional<Value> global(const std::string& name) {
  static const Builtins functions = {
      {"dict", {"dict", {}, Bound::any, make_dict}},
      {"namespace", {"namespace", {}, Bound::any, make_namespace}},
      {"raise_exception", {"raise_exception", {"message"}, 1, raise_exception}},
      {"range", {"range", {"start", "stop", "step"}, 1, range}},
      {"strftime_now", {"strftime_now", {"format"}, 1, strftime_now}},
  };
  const auto found = functions.find(name);
  if (found == functions.end()) return std::nullopt;
  return Value(std::make_shared<const Function>(Function{
      name, [&builtin = found->second](Runner& runner, Given given) { return builtin.call(runner, {}, given); }}));
}

}  // namespace fsdp::text::jinja
