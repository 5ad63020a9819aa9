// SPDX-License-Identifier: Apache-2.0
/// @file
/// A template's syntax: its tokens, its parsed expressions and statements, each with the function that runs it, and the
/// parser of Jinja's grammar. An unknown feature is an error that identifies it, before the template runs.
#pragma once

#include <cstdint>
#include <functional>
#include <memory>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include <tessera/fsdp/core/error.hpp>
#include <tessera/fsdp/core/terminal_text.hpp>

#include "../value.hpp"

namespace fsdp::text::jinja {

enum class Kind : std::uint8_t {
  text,         ///< text outside of tags
  print_begin,  ///< {{
  print_end,    ///< }}
  block_begin,  ///< {%
  block_end,    ///< %}
  name,
  string,  ///< with escapes decoded
  whole,   ///< only digits
  fraction,
  sign,  ///< an operator or bracket
  end
};

struct Token {
  Kind kind = Kind::end;
  std::string text = {};
  int line = 0;
};

/// Throws InputError "`source`: line N: ..." for an invalid or unterminated token.
std::vector<Token> tokens_of(std::string_view text, const std::string& source);

struct Call;

struct Expression {
  int line = 0;
  int depth = 1;                        ///< nesting depth of expressions
  std::function<Value(Runner&)> value;  ///< call it through Runner::evaluate, which spends a step and limits the depth
  std::shared_ptr<const Call> call = {};  ///< if the expression is a call, else null
};
using ExpressionPointer = std::shared_ptr<const Expression>;

struct Arguments {
  std::vector<ExpressionPointer> values;  ///< positional arguments first
  std::vector<std::string> names;         ///< names of the last values, the named arguments
};
struct Call {
  ExpressionPointer of;
  Arguments arguments;
};
struct Filter {
  std::string name;
  Arguments arguments;
};

/// Control flow after a statement: the next statement, `break` (`leave`) or `continue` (`again`).
enum class Flow : std::uint8_t { next, leave, again };

struct Statement {
  int line = 0;
  std::function<Flow(Runner&)> run;
};
using Body = std::vector<Statement>;

/// The target of `set` and `for`: a name, a namespace's member, or several of them.
struct Target {
  std::string name = {};
  std::string member = {};
  std::vector<Target> parts = {};
};

struct For {
  Target target;
  ExpressionPointer items, condition;  // `condition` may be null
  Body body, otherwise;
};
struct With {
  std::vector<std::pair<Target, ExpressionPointer>> values;
  Body body;
};
struct Macro {
  std::string name;
  std::vector<std::pair<std::string, ExpressionPointer>> parameters;  // names with their defaults, which may be null
  Body body;
};

struct Program {
  Body body;
  bool has_generation = false;
};

/// Parses a template. Throws InputError "`source`: line N: ...".
Program parse(std::string_view text, const std::string& source);

/// Reads tokens, and parses expressions.
class ExpressionParser {
 public:
  ExpressionParser(std::vector<Token> tokens, const std::string& source)
      : tokens_(std::move(tokens)), source_(source) {}

  const Token& now() const { return tokens_[at_]; }
  Token take() { return std::move(tokens_[at_ + 1 < tokens_.size() ? at_++ : at_]); }
  bool at_sign(std::string_view sign) const { return now().kind == Kind::sign && now().text == sign; }
  bool at_name(std::string_view name) const { return now().kind == Kind::name && now().text == name; }
  bool skip_sign(std::string_view sign) { return skip(at_sign(sign)); }
  bool skip_name(std::string_view name) { return skip(at_name(name)); }
  void expect_sign(std::string_view sign) {
    if (!skip_sign(sign)) refuse("'", sign, "' is missing");
  }
  void expect_name(std::string_view name) {
    if (!skip_name(name)) refuse("'", name, "' is missing");
  }
  std::string take_name(std::string_view what) {
    if (now().kind != Kind::name) refuse(what, " is missing");
    return take().text;
  }

  /// Parses items separated by commas, with an optional trailing comma, up to a closing sign.
  template <class Take>
  void take_all(std::string_view close, const Take& take_one) {
    for (bool first = true; !at_sign(close); first = false) {
      if (!first) expect_sign(",");
      if (at_sign(close)) break;
      take_one();
    }
    take();
  }
  template <class... Parts>
  [[noreturn]] void refuse(const Parts&... parts) const {
    throw InputError(message(source_, ": line ", now().line, ": ", shortened_part(parts)...));
  }

  ExpressionPointer expression();             ///< may be `a if b else c`
  ExpressionPointer tuple(bool conditional);  ///< one or several expressions; `conditional`: may be `a if b else c`
  Arguments arguments();                      ///< from "(" to ")"
  Filter filter();                            ///< a name and its arguments

 private:
  static constexpr int most_nested = 200;

  bool skip(bool is_next) {
    if (is_next) take();
    return is_next;
  }

  void enter();  ///< increments depth_, which limits how deeply expressions can be nested

  /// Makes an expression from its parts, some of which may be null. Throws InputError if it is too deep to be evaluated
  /// or destroyed, such as a sum of very many terms.
  ExpressionPointer make(int line, const std::vector<ExpressionPointer>& parts,
                         std::function<Value(Runner&)> value) const;
  ExpressionPointer literal(int line, Value value) const;
  ExpressionPointer list_of(int line, std::vector<ExpressionPointer> items, bool tuple) const;
  ExpressionPointer negated(int line, const ExpressionPointer& of) const;
  ExpressionPointer item(int line, const ExpressionPointer& of, const ExpressionPointer& key) const;

  ExpressionPointer logical(bool either);  ///< parses `or` if `either`, else `and`, which binds more strongly
  ExpressionPointer negation();
  ExpressionPointer comparison();
  ExpressionPointer binary(int level);
  ExpressionPointer unary(bool filtered);
  ExpressionPointer primary();
  ExpressionPointer postfix(ExpressionPointer of);
  ExpressionPointer call(int line, const ExpressionPointer& of);
  ExpressionPointer filters_and_tests(ExpressionPointer of);
  ExpressionPointer test(const ExpressionPointer& of);
  ExpressionPointer subscript(const ExpressionPointer& of);
  ExpressionPointer named();
  ExpressionPointer number();
  ExpressionPointer dict(int line);

  std::vector<Token> tokens_;
  const std::string& source_;
  std::size_t at_ = 0;
  int depth_ = 0;
};

}  // namespace fsdp::text::jinja
