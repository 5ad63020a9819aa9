// SPDX-License-Identifier: Apache-2.0
// Parses the suffixes of a value: attributes, items, calls, filters and tests.
#include "../builtins.hpp"
#include "../runner.hpp"
#include "parser.hpp"

namespace fsdp::text::jinja {
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
