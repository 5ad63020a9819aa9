// SPDX-License-Identifier: Apache-2.0
/// @file
/// Jinja's tests, such as `value is defined`.
#include <map>

#include "builtins.hpp"
#include "strings.hpp"

namespace fsdp::text::jinja {
namespace {

struct TestKind {
  std::size_t arguments = 0;
  bool (*passes)(const Value& of, const Value* argument) = nullptr;
};

std::int64_t remainder_of(const Value& of, std::int64_t by) {
  const std::int64_t number = of.integer("what is tested");
  if (by == 0) refuse("divisibleby: division by zero");
  return by == -1 ? 0 : number % by;
}

bool is_iterable(const Value& v) {
  return v.is_undefined() || v.as_text() != nullptr || v.as_list() != nullptr || v.as_dict() != nullptr;
}

bool has_case_of(const Value& of, bool is_upper_case) {
  const std::string text = of.text();
  const std::string same = is_upper_case ? upper(text) : lower(text), other = is_upper_case ? lower(text) : upper(text);
  return text == same && text != other;
}

const std::map<std::string, TestKind, std::less<>>& tests() {
  using V = const Value&;
  using A = const Value*;
  static const std::map<std::string, TestKind, std::less<>> known = {
      {"boolean", {0, [](V v, A) { return v.get<bool>() != nullptr; }}},
      {"callable", {0, [](V v, A) { return v.as_function() != nullptr; }}},
      {"defined", {0, [](V v, A) { return !v.is_undefined(); }}},
      {"divisibleby", {1, [](V v, A a) { return remainder_of(v, a->integer("divisibleby")) == 0; }}},
      {"eq", {1, [](V v, A a) { return v == *a; }}},
      {"equalto", {1, [](V v, A a) { return v == *a; }}},
      {"==", {1, [](V v, A a) { return v == *a; }}},
      {"even", {0, [](V v, A) { return remainder_of(v, 2) == 0; }}},
      {"false", {0, [](V v, A) { return v.get<bool>() != nullptr && !*v.get<bool>(); }}},
      {"float", {0, [](V v, A) { return v.get<double>() != nullptr; }}},
      {"ge", {1, [](V v, A a) { return !is_less(v, *a); }}},
      {"gt", {1, [](V v, A a) { return is_less(*a, v); }}},
      {"greaterthan", {1, [](V v, A a) { return is_less(*a, v); }}},
      {"in", {1, [](V v, A a) { return contains(*a, v); }}},
      {"integer", {0, [](V v, A) { return v.get<std::int64_t>() != nullptr || v.get<BigInteger>() != nullptr; }}},
      {"iterable", {0, [](V v, A) { return is_iterable(v); }}},
      {"le", {1, [](V v, A a) { return !is_less(*a, v); }}},
      {"lessthan", {1, [](V v, A a) { return is_less(v, *a); }}},
      {"lower", {0, [](V v, A) { return has_case_of(v, false); }}},
      {"lt", {1, [](V v, A a) { return is_less(v, *a); }}},
      {"mapping", {0, [](V v, A) { return v.as_dict() != nullptr; }}},
      {"ne", {1, [](V v, A a) { return !(v == *a); }}},
      {"none", {0, [](V v, A) { return v.is_none(); }}},
      {"number", {0, [](V v, A) { return v.is_number(); }}},
      {"odd", {0, [](V v, A) { return remainder_of(v, 2) != 0; }}},
      {"sameas", {1, [](V v, A a) { return v.kinds().index() == a->kinds().index() && v == *a; }}},
      {"sequence", {0, [](V v, A) { return is_iterable(v); }}},
      {"string", {0, [](V v, A) { return v.as_text() != nullptr; }}},
      {"true", {0, [](V v, A) { return v.get<bool>() != nullptr && *v.get<bool>(); }}},
      {"undefined", {0, [](V v, A) { return v.is_undefined(); }}},
      {"upper", {0, [](V v, A) { return has_case_of(v, true); }}},
  };
  return known;
}

}  // namespace

bool is_test(std::string_view name) { return tests().contains(name); }

bool passes_test(const std::string& name, const Value& of, const CallArguments& arguments) {
  const auto found = tests().find(name);
  if (found == tests().end()) refuse("the test '", name, "' is not known");
  spend(1 + (of.as_text() == nullptr ? 0 : of.as_text()->size() / 16));
  if (arguments.positional.size() != found->second.arguments || !arguments.named.empty()) {
    refuse("the test '", name, "' takes ", found->second.arguments, " arguments");
  }
  return found->second.passes(of, arguments.positional.empty() ? nullptr : &arguments.positional[0]);
}

}  // namespace fsdp::text::jinja
