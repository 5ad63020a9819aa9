// SPDX-License-Identifier: Apache-2.0
#include <array>
#include <optional>

#include "../builtins.hpp"
#include "../strings.hpp"
#include "parser.hpp"

namespace fsdp::text::jinja {
namespace {

constexpr int most_nested = 200;
constexpr int most_deep = 1000;  // as deep as the runner evaluates

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

constexpr std::array<std::pair<std::string_view, Relation>, 6> relations = {{{"==", Relation::equal},
                                                                             {"!=", Relation::unequal},
                                                                             {"<", Relation::less},
                                                                             {"<=", Relation::at_most},
                                                                             {">", Relation::greater},
                                                                             {">=", Relation::at_least}}};

}  // namespace

ExpressionPointer ExpressionParser::checked(Expression expression) const {
  expression.depth = depth_of(expression);
  if (expression.depth > most_deep) refuse("an expression is more than ", most_deep, " deep");
  return std::make_unique<const Expression>(std::move(expression));
}

/// Limits how deeply expressions can be nested.
class ExpressionParser::Depth {
 public:
  explicit Depth(ExpressionParser& parser) : parser_(parser) {
    if (++parser_.depth_ > most_nested) parser_.refuse("expressions are nested more than ", most_nested, " deep");
  }
  ~Depth() { --parser_.depth_; }
  Depth(const Depth&) = delete;
  Depth& operator=(const Depth&) = delete;

 private:
  ExpressionParser& parser_;
};

bool ExpressionParser::skip_sign(std::string_view sign) {
  if (!at_sign(sign)) return false;
  take();
  return true;
}

bool ExpressionParser::skip_name(std::string_view name) {
  if (!at_name(name)) return false;
  take();
  return true;
}

void ExpressionParser::expect_sign(std::string_view sign) {
  if (!skip_sign(sign)) refuse("'", sign, "' is missing");
}

void ExpressionParser::expect_name(std::string_view name) {
  if (!skip_name(name)) refuse("'", name, "' is missing");
}

std::string ExpressionParser::take_name(std::string_view what) {
  if (now().kind != Kind::name) refuse(what, " is missing");
  return take().text;
}

ExpressionPointer ExpressionParser::expression() {
  const Depth depth(*this);
  const int line = now().line;
  ExpressionPointer value = either();
  while (skip_name("if")) {
    ExpressionPointer condition = either();
    ExpressionPointer otherwise = skip_name("else") ? expression() : nullptr;
    value = make(line, Conditional{std::move(value), std::move(condition), std::move(otherwise)});
  }
  return value;
}

ExpressionPointer ExpressionParser::tuple(bool conditional) {
  const int line = now().line;
  const auto one = [&] { return conditional ? expression() : either(); };
  const auto ends = [&] {
    return now().kind == Kind::print_end || now().kind == Kind::block_end || at_sign(")") || at_name("in");
  };
  std::vector<ExpressionPointer> items;
  items.push_back(one());
  if (!at_sign(",")) return std::move(items[0]);
  while (skip_sign(",") && !ends()) items.push_back(one());
  return make(line, ListOf{.items = std::move(items), .tuple = true});
}

ExpressionPointer ExpressionParser::either() {
  const int line = now().line;
  ExpressionPointer left = both();
  while (skip_name("or")) left = make(line, Binary{BinaryOperator::either, std::move(left), both()});
  return left;
}

ExpressionPointer ExpressionParser::both() {
  const int line = now().line;
  ExpressionPointer left = negation();
  while (skip_name("and")) left = make(line, Binary{BinaryOperator::both, std::move(left), negation()});
  return left;
}

ExpressionPointer ExpressionParser::negation() {
  const Depth depth(*this);
  const int line = now().line;
  if (skip_name("not")) return make(line, Unary{UnaryOperator::negation, negation()});
  return comparison();
}

ExpressionPointer ExpressionParser::comparison() {
  const int line = now().line;
  ExpressionPointer first = binary(0);
  std::vector<std::pair<Relation, ExpressionPointer>> rest;
  for (;;) {
    std::optional<Relation> relation;
    for (const auto& [sign, kind] : relations) {
      if (at_sign(sign)) relation = kind;
    }
    if (at_name("in")) relation = Relation::in;
    const bool negated = at_name("not") && tokens_[at_ + 1].kind == Kind::name && tokens_[at_ + 1].text == "in";
    if (negated) {
      take();
      relation = Relation::not_in;
    }
    if (!relation) break;
    take();
    rest.emplace_back(*relation, binary(0));
  }
  if (rest.empty()) return first;
  return make(line, Comparison{std::move(first), std::move(rest)});
}

ExpressionPointer ExpressionParser::binary(int level) {
  if (level == static_cast<int>(levels.size())) return unary(true);
  const int line = now().line;
  ExpressionPointer left = binary(level + 1);
  for (;;) {
    std::optional<BinaryOperator> found;
    for (const BinarySign& candidate : levels[static_cast<std::size_t>(level)]) {
      if (!candidate.sign.empty() && at_sign(candidate.sign)) found = candidate.kind;
    }
    if (!found) return left;
    take();
    left = make(line, Binary{*found, std::move(left), binary(level + 1)});
  }
}

ExpressionPointer ExpressionParser::unary(bool filtered) {
  const Depth depth(*this);
  const int line = now().line;
  ExpressionPointer value;
  if (skip_sign("-")) {
    value = make(line, Unary{UnaryOperator::minus, unary(false)});
  } else if (skip_sign("+")) {
    value = make(line, Unary{UnaryOperator::plus, unary(false)});
  } else {
    value = postfix(primary());
  }
  return filtered ? filters_and_tests(std::move(value)) : std::move(value);
}

ExpressionPointer ExpressionParser::primary() {
  switch (now().kind) {
    case Kind::name: return named();
    case Kind::string: return text();
    case Kind::whole:
    case Kind::fraction: return number();
    default: break;
  }
  const int line = now().line;
  if (at_sign("[")) return list();
  if (at_sign("{")) return dict();
  if (!skip_sign("(")) refuse("an expression is missing");
  if (skip_sign(")")) return make(line, ListOf{.items = {}, .tuple = true});
  ExpressionPointer inner = tuple(true);
  expect_sign(")");
  return inner;
}

ExpressionPointer ExpressionParser::named() {
  const int line = now().line;
  const std::string name = take().text;
  if (name == "true" || name == "True") return make(line, Literal{true});
  if (name == "false" || name == "False") return make(line, Literal{false});
  if (name == "none" || name == "None") return make(line, Literal{Value::none()});
  for (const std::string_view word : {"and", "or", "not", "if", "else", "in", "is"}) {
    if (name == word) refuse("an expression is missing before '", name, "'");
  }
  return make(line, Name{name});
}

ExpressionPointer ExpressionParser::text() {
  const int line = now().line;
  std::string joined;
  while (now().kind == Kind::string) joined += take().text;  // adjacent literals are concatenated
  return make(line, Literal{std::move(joined)});
}

ExpressionPointer ExpressionParser::number() {
  const int line = now().line;
  const bool is_whole = now().kind == Kind::whole;
  const std::string digits = now().text;
  const std::optional<std::int64_t> whole = is_whole ? whole_number(digits) : std::nullopt;
  const std::optional<double> real = is_whole ? std::nullopt : real_number(digits);
  if (!whole && !real) refuse("the number ", digits, " has more than 63 bits");
  take();
  return whole ? make(line, Literal{*whole}) : make(line, Literal{*real});
}

ExpressionPointer ExpressionParser::list() {
  const int line = now().line;
  expect_sign("[");
  ListOf list;
  take_all("]", [&] { list.items.push_back(expression()); });
  return make(line, std::move(list));
}

ExpressionPointer ExpressionParser::dict() {
  const int line = now().line;
  expect_sign("{");
  DictOf dict;
  take_all("}", [&] {
    ExpressionPointer key = expression();
    expect_sign(":");
    dict.items.emplace_back(std::move(key), expression());
  });
  return make(line, std::move(dict));
}

ExpressionPointer ExpressionParser::postfix(ExpressionPointer of) {
  for (int length = 0;; ++length) {
    if (length > most_nested) refuse("more than ", most_nested, " parts follow one another");
    const int line = now().line;
    if (skip_sign(".")) {
      if (now().kind == Kind::whole) {
        of = make(line, Item{std::move(of), number()});
      } else {
        of = make(line, Attribute{std::move(of), take_name("an attribute's name")});
      }
    } else if (at_sign("[")) {
      of = subscript(std::move(of));
    } else if (at_sign("(")) {
      of = make(line, Call{std::move(of), arguments()});
    } else {
      return of;
    }
  }
}

ExpressionPointer ExpressionParser::subscript(ExpressionPointer of) {
  const int line = now().line;
  expect_sign("[");
  const auto part = [&]() -> ExpressionPointer { return at_sign(":") || at_sign("]") ? nullptr : expression(); };
  ExpressionPointer first = part();
  if (!at_sign(":")) {
    if (first == nullptr) refuse("an index is missing");
    if (at_sign(",")) refuse("an index of several parts is not known");
    expect_sign("]");
    return make(line, Item{std::move(of), std::move(first)});
  }
  take();
  Slice slice{.of = std::move(of), .begin = std::move(first), .end = part(), .step = nullptr};
  if (skip_sign(":")) slice.step = part();
  expect_sign("]");
  return make(line, std::move(slice));
}

Arguments ExpressionParser::arguments() {
  expect_sign("(");
  Arguments arguments;
  take_all(")", [&] {
    if (at_sign("*") || at_sign("**")) refuse("arguments by ", now().text, " are not known");
    const Token& next = tokens_[at_ + 1];
    if (now().kind == Kind::name && next.kind == Kind::sign && next.text == "=") {
      std::string name = take().text;
      take();
      arguments.named.emplace_back(std::move(name), expression());
    } else {
      if (!arguments.named.empty()) refuse("an argument without a name follows one with a name");
      arguments.positional.push_back(expression());
    }
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
      Filter next = filter();
      next.of = std::move(of);
      of = make(line, std::move(next));
    } else if (skip_name("is")) {
      of = test(std::move(of));
    } else if (at_sign("(")) {
      of = make(line, Call{std::move(of), arguments()});
    } else {
      return of;
    }
  }
}

ExpressionPointer ExpressionParser::test(ExpressionPointer of) {
  const int line = now().line;
  const bool negated = skip_name("not");
  Test test{.of = std::move(of), .name = {}, .arguments = {}};
  test.name = take_name("a test's name");
  if (!is_test(test.name)) refuse("the test '", test.name, "' is not known");
  const bool begins = (now().kind == Kind::name && !at_name("else") && !at_name("or") && !at_name("and") &&
                       !at_name("is") && !at_name("if") && !at_name("in") && !at_name("not")) ||
                      now().kind == Kind::string || now().kind == Kind::whole || now().kind == Kind::fraction ||
                      at_sign("[") || at_sign("{");
  if (at_sign("(")) {
    test.arguments = arguments();
  } else if (begins) {
    test.arguments.positional.push_back(postfix(primary()));
  }
  ExpressionPointer made = make(line, std::move(test));
  return negated ? make(line, Unary{UnaryOperator::negation, std::move(made)}) : std::move(made);
}

}  // namespace fsdp::text::jinja
