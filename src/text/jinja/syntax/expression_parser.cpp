// SPDX-License-Identifier: Apache-2.0
#include <algorithm>
#include <array>
#include <optional>

#include "../builtins.hpp"
#include "../runner.hpp"
#include "../strings.hpp"
#include "syntax.hpp"

namespace fsdp::text::jinja {
namespace {

constexpr int most_deep = 1000;  // the runner's limit on depth

using Compare = bool (*)(const Value& a, const Value& b);

struct BinarySign {
  std::string_view sign;
  BinaryOperator kind;
};

/// Operators by precedence, weakest first. All levels are left associative, including the power, as in Jinja.
constexpr std::array<std::array<BinarySign, 4>, 4> levels = {{
    {{{"+", BinaryOperator::add}, {"-", BinaryOperator::subtract}}},
    {{{"~", BinaryOperator::join}}},
    {{{"*", BinaryOperator::multiply},
      {"/", BinaryOperator::divide},
      {"//", BinaryOperator::floor},
      {"%", BinaryOperator::modulo}}},
    {{{"**", BinaryOperator::power}}},
}};

constexpr std::array<std::pair<std::string_view, Compare>, 6> relations = {{
    {"==", [](const Value& a, const Value& b) { return a == b; }},
    {"!=", [](const Value& a, const Value& b) { return !(a == b); }},
    {"<", is_less},
    {"<=", [](const Value& a, const Value& b) { return !is_less(b, a); }},
    {">", [](const Value& a, const Value& b) { return is_less(b, a); }},
    {">=", [](const Value& a, const Value& b) { return !is_less(a, b); }},
}};

}  // namespace

ExpressionPointer ExpressionParser::make(int line, const std::vector<ExpressionPointer>& parts,
                                         std::function<Value(Runner&)> value) const {
  int depth = 1;
  for (const ExpressionPointer& part : parts)
    if (part != nullptr) depth = std::max(depth, part->depth + 1);
  if (depth > most_deep) refuse("an expression is more than ", most_deep, " deep");
  return std::make_shared<const Expression>(Expression{.line = line, .depth = depth, .value = std::move(value)});
}

ExpressionPointer ExpressionParser::literal(int line, Value value) const {
  return make(line, {}, [value = std::move(value)](Runner&) { return value; });
}

void ExpressionParser::enter() {
  if (++depth_ > most_nested) refuse("expressions are nested more than ", most_nested, " deep");
}

ExpressionPointer ExpressionParser::expression() {
  enter();
  const int line = now().line;
  ExpressionPointer value = logical(true);
  while (skip_name("if")) {
    const ExpressionPointer condition = logical(true);
    const ExpressionPointer otherwise = skip_name("else") ? expression() : nullptr;
    value = make(line, {value, condition, otherwise}, [value, condition, otherwise](Runner& runner) {
      if (runner.evaluate(*condition).truth()) return runner.evaluate(*value);
      return otherwise == nullptr ? Value() : runner.evaluate(*otherwise);
    });
  }
  --depth_;
  return value;
}

ExpressionPointer ExpressionParser::list_of(int line, std::vector<ExpressionPointer> items, bool tuple) const {
  return make(line, items, [items, tuple](Runner& runner) {
    std::vector<Value> values;
    for (const ExpressionPointer& item : items) values.push_back(runner.evaluate(*item));
    return Value::list(std::move(values), tuple);
  });
}

ExpressionPointer ExpressionParser::tuple(bool conditional) {
  const int line = now().line;
  const auto one = [&] { return conditional ? expression() : logical(true); };
  const auto ends = [&] {
    return now().kind == Kind::print_end || now().kind == Kind::block_end || at_sign(")") || at_name("in");
  };
  std::vector<ExpressionPointer> items = {one()};
  if (!at_sign(",")) return items[0];
  while (skip_sign(",") && !ends()) items.push_back(one());
  return list_of(line, std::move(items), true);
}

ExpressionPointer ExpressionParser::logical(bool either) {
  const int line = now().line;
  const auto operand = [&] { return either ? logical(false) : negation(); };
  ExpressionPointer left = operand();
  while (skip_name(either ? "or" : "and")) {
    const ExpressionPointer right = operand();
    left = make(line, {left, right}, [either, left, right](Runner& runner) {
      const Value value = runner.evaluate(*left);
      return value.truth() == either ? value : runner.evaluate(*right);
    });
  }
  return left;
}

ExpressionPointer ExpressionParser::negated(int line, const ExpressionPointer& of) const {
  return make(line, {of}, [of](Runner& runner) { return !runner.evaluate(*of).truth(); });
}

ExpressionPointer ExpressionParser::negation() {
  enter();
  const int line = now().line;
  ExpressionPointer value = skip_name("not") ? negated(line, negation()) : comparison();
  --depth_;
  return value;
}

ExpressionPointer ExpressionParser::comparison() {
  const int line = now().line;
  const ExpressionPointer first = binary(0);
  std::vector<ExpressionPointer> parts = {first};
  std::vector<Compare> compares;  // a < b < c means a < b and b < c
  for (;;) {
    Compare compare = nullptr;
    for (const auto& [sign, function] : relations)
      if (at_sign(sign)) compare = function;
    if (at_name("in")) compare = [](const Value& a, const Value& b) { return contains(b, a); };
    if (at_name("not") && tokens_[at_ + 1].kind == Kind::name && tokens_[at_ + 1].text == "in") {
      take();
      compare = [](const Value& a, const Value& b) { return !contains(b, a); };
    }
    if (compare == nullptr) break;
    take();
    compares.push_back(compare);
    parts.push_back(binary(0));
  }
  if (compares.empty()) return first;
  return make(line, parts, [parts, compares](Runner& runner) -> Value {
    Value left = runner.evaluate(*parts[0]);
    for (std::size_t i = 0; i < compares.size(); ++i) {
      Value right = runner.evaluate(*parts[i + 1]);
      if (!compares[i](left, right)) return false;
      left = std::move(right);
    }
    return true;
  });
}

ExpressionPointer ExpressionParser::binary(int level) {
  if (level == static_cast<int>(levels.size())) return unary(true);
  const int line = now().line;
  ExpressionPointer left = binary(level + 1);
  for (;;) {
    std::optional<BinaryOperator> found;
    for (const BinarySign& candidate : levels[static_cast<std::size_t>(level)])
      if (!candidate.sign.empty() && at_sign(candidate.sign)) found = candidate.kind;
    if (!found) return left;
    take();
    const ExpressionPointer right = binary(level + 1);
    left = make(line, {left, right}, [kind = *found, left, right](Runner& runner) {
      const Value value = runner.evaluate(*left);
      return operate(kind, value, runner.evaluate(*right));
    });
  }
}

ExpressionPointer ExpressionParser::unary(bool filtered) {
  enter();
  const int line = now().line;
  ExpressionPointer value;
  if (at_sign("-") || at_sign("+")) {
    const bool minus = take().text == "-";
    value = unary(false);
    value = make(line, {value}, [minus, of = value](Runner& runner) {
      const Value number = runner.evaluate(*of);
      if (!number.is_number()) jinja::refuse(number.kind_name(), " has no sign");
      return minus ? operate(BinaryOperator::multiply, std::int64_t{-1}, number)
                   : operate(BinaryOperator::add, std::int64_t{0}, number);
    });
  } else {
    value = postfix(primary());
  }
  if (filtered) value = filters_and_tests(std::move(value));
  --depth_;
  return value;
}

ExpressionPointer ExpressionParser::primary() {
  const int line = now().line;
  if (now().kind == Kind::name) return named();
  if (now().kind == Kind::whole || now().kind == Kind::fraction) return number();
  if (now().kind == Kind::string) {
    std::string joined;
    while (now().kind == Kind::string) joined += take().text;  // adjacent literals are concatenated
    return literal(line, std::move(joined));
  }
  if (skip_sign("[")) {
    std::vector<ExpressionPointer> items;
    take_all("]", [&] { items.push_back(expression()); });
    return list_of(line, std::move(items), false);
  }
  if (skip_sign("{")) return dict(line);
  if (!skip_sign("(")) refuse("an expression is missing");
  if (skip_sign(")")) return list_of(line, {}, true);
  ExpressionPointer inner = tuple(true);
  expect_sign(")");
  return inner;
}

ExpressionPointer ExpressionParser::named() {
  const int line = now().line;
  const std::string name = take().text;
  if (name == "true" || name == "True") return literal(line, true);
  if (name == "false" || name == "False") return literal(line, false);
  if (name == "none" || name == "None") return literal(line, Value::none());
  for (const std::string_view word : {"and", "or", "not", "if", "else", "in", "is"})
    if (name == word) refuse("an expression is missing before '", name, "'");
  return make(line, {}, [name](Runner& runner) { return runner.value_of(name); });
}

ExpressionPointer ExpressionParser::number() {
  const int line = now().line;
  const bool is_whole = now().kind == Kind::whole;
  const std::string digits = now().text;
  const std::optional<std::int64_t> whole = is_whole ? whole_number(digits) : std::nullopt;
  const std::optional<double> real = is_whole ? std::nullopt : real_number(digits);
  if (!whole && !real) refuse("the number ", digits, " has more than 63 bits");
  take();
  return literal(line, whole ? Value(*whole) : Value(*real));
}

ExpressionPointer ExpressionParser::dict(int line) {
  std::vector<ExpressionPointer> parts;  // key, value, key, value, ...
  take_all("}", [&] {
    parts.push_back(expression());
    expect_sign(":");
    parts.push_back(expression());
  });
  return make(line, parts, [parts](Runner& runner) {
    Dict dict;
    for (std::size_t i = 0; i < parts.size(); i += 2) {
      Value key = runner.evaluate(*parts[i]);
      dict.set(std::move(key), runner.evaluate(*parts[i + 1]));
    }
    return Value::dict(std::move(dict));
  });
}

namespace {

/// Returns the operand and the arguments of a call, a filter or a test.
std::vector<ExpressionPointer> parts_of(const ExpressionPointer& of, const Arguments& arguments) {
  std::vector<ExpressionPointer> parts = arguments.values;
  parts.push_back(of);
  return parts;
}

}  // namespace

ExpressionPointer ExpressionParser::postfix(ExpressionPointer of) {
  for (int length = 0;; ++length) {
    if (length > most_nested) refuse("more than ", most_nested, " parts follow one another");
    const int line = now().line;
    if (skip_sign(".")) {
      if (now().kind == Kind::whole) {
        of = item(line, of, number());
      } else {
        const std::string name = take_name("an attribute's name");
        of = make(line, {of}, [of, name](Runner& runner) { return attribute_of(runner.evaluate(*of), name); });
      }
    } else if (at_sign("[")) {
      of = subscript(of);
    } else if (at_sign("(")) {
      of = call(line, of);
    } else {
      return of;
    }
  }
}

ExpressionPointer ExpressionParser::item(int line, const ExpressionPointer& of, const ExpressionPointer& key) const {
  return make(line, {of, key}, [of, key](Runner& runner) {
    const Value holder = runner.evaluate(*of);
    return item_of(holder, runner.evaluate(*key));
  });
}

ExpressionPointer ExpressionParser::call(int line, const ExpressionPointer& of) {
  const auto call = std::make_shared<const Call>(Call{of, arguments()});
  Expression made = *make(line, parts_of(of, call->arguments), [call](Runner& runner) {
    const Value function = runner.evaluate(*call->of);
    return runner.call(function, runner.evaluate_all(call->arguments));
  });
  made.call = call;
  return std::make_shared<const Expression>(std::move(made));
}

ExpressionPointer ExpressionParser::subscript(const ExpressionPointer& of) {
  const int line = now().line;
  expect_sign("[");
  const auto part = [&]() -> ExpressionPointer { return at_sign(":") || at_sign("]") ? nullptr : expression(); };
  const ExpressionPointer begin = part();
  if (!at_sign(":")) {
    if (begin == nullptr) refuse("an index is missing");
    if (at_sign(",")) refuse("an index of several parts is not known");
    expect_sign("]");
    return item(line, of, begin);
  }
  take();
  const ExpressionPointer end = part(), step = skip_sign(":") ? part() : nullptr;
  expect_sign("]");
  return make(line, {of, begin, end, step}, [of, begin, end, step](Runner& runner) {
    const auto bound = [&](const ExpressionPointer& one) {
      return one == nullptr ? Value::none() : runner.evaluate(*one);
    };
    const Value sliced = runner.evaluate(*of), from = bound(begin), to = bound(end);
    return slice_of(sliced, from, to, bound(step));
  });
}

Arguments ExpressionParser::arguments() {
  expect_sign("(");
  Arguments arguments;
  take_all(")", [&] {
    if (at_sign("*") || at_sign("**")) refuse("arguments by ", now().text, " are not known");
    const Token& next = tokens_[at_ + 1];
    if (now().kind == Kind::name && next.kind == Kind::sign && next.text == "=") {
      arguments.names.push_back(take().text);
      take();
    } else if (!arguments.names.empty()) {
      refuse("an argument without a name follows one with a name");
    }
    arguments.values.push_back(expression());
  });
  return arguments;
}

Filter ExpressionParser::filter() {
  Filter filter;
  filter.name = take_name("a filter's name");
  if (!is_filter(filter.name)) refuse("the filter '", filter.name, "' is not known");
  if (at_sign("(")) filter.arguments = arguments();
  return filter;
}

ExpressionPointer ExpressionParser::filters_and_tests(ExpressionPointer of) {
  for (int length = 0;; ++length) {
    if (length > most_nested) refuse("more than ", most_nested, " filters follow one another");
    const int line = now().line;
    if (skip_sign("|")) {
      const Filter next = filter();
      of = make(line, parts_of(of, next.arguments), [of, next](Runner& runner) {
        const Value value = runner.evaluate(*of);
        return apply_filter(runner, next.name, value, runner.evaluate_all(next.arguments));
      });
    } else if (skip_name("is")) {
      of = test(of);
    } else if (at_sign("(")) {
      of = call(line, of);
    } else {
      return of;
    }
  }
}

ExpressionPointer ExpressionParser::test(const ExpressionPointer& of) {
  const int line = now().line;
  const bool is_negated = skip_name("not");
  const std::string name = take_name("a test's name");
  if (!is_test(name)) refuse("the test '", name, "' is not known");
  const bool begins = (now().kind == Kind::name && !at_name("else") && !at_name("or") && !at_name("and") &&
                       !at_name("is") && !at_name("if") && !at_name("in") && !at_name("not")) ||
                      now().kind == Kind::string || now().kind == Kind::whole || now().kind == Kind::fraction ||
                      at_sign("[") || at_sign("{");
  Arguments given;
  if (at_sign("("))
    given = arguments();
  else if (begins)
    given.values.push_back(postfix(primary()));
  const ExpressionPointer made = make(line, parts_of(of, given), [of, name, given](Runner& runner) {
    const Value value = runner.evaluate(*of);
    return passes_test(name, value, runner.evaluate_all(given));
  });
  return is_negated ? negated(line, made) : made;
}

}  // namespace fsdp::text::jinja
