// SPDX-License-Identifier: Apache-2.0
/// @file
/// Parses templates by Jinja's grammar. An unknown feature is an error that identifies it, before the template runs.
#pragma once

#include <functional>
#include <string>
#include <string_view>
#include <vector>

#include <tessera/fsdp/core/error.hpp>
#include <tessera/fsdp/core/terminal_text.hpp>

#include "lexer.hpp"
#include "syntax.hpp"

namespace fsdp::text::jinja {

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
  void expect_sign(std::string_view sign);
  void expect_name(std::string_view name);
  std::string take_name(std::string_view what);

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
  class Depth;
  static constexpr int most_nested = 200;

  bool skip(bool is_next) {
    if (is_next) take();
    return is_next;
  }

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
  ExpressionPointer text();
  ExpressionPointer list();
  ExpressionPointer dict();

  std::vector<Token> tokens_;
  const std::string& source_;
  std::size_t at_ = 0;
  int depth_ = 0;
};

}  // namespace fsdp::text::jinja
