// SPDX-License-Identifier: Apache-2.0
/// @file
/// Parses templates to trees by Jinja's grammar. An unknown feature is an error that names it, before anything runs.
#pragma once

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
  bool skip_sign(std::string_view sign);
  bool skip_name(std::string_view name);
  void expect_sign(std::string_view sign);
  void expect_name(std::string_view name);
  std::string take_name(std::string_view what);

  /// Takes items with commas between and perhaps behind, up to a closing sign.
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
  ExpressionPointer tuple(bool conditional);  ///< one or several; `conditional`: each may be `a if b else c`
  Arguments arguments();                      ///< from "(" to ")"
  Filter filter();                            ///< a name and its arguments

 private:
  class Depth;

  /// Makes an expression. Refuses it if it is too deep to be evaluated or destroyed, such as a sum of very many terms.
  template <class Node>
  ExpressionPointer make(int line, Node node) const {
    return checked({.line = line, .node = std::move(node)});
  }
  ExpressionPointer checked(Expression expression) const;

  ExpressionPointer either();
  ExpressionPointer both();
  ExpressionPointer negation();
  ExpressionPointer comparison();
  ExpressionPointer binary(int level);
  ExpressionPointer unary(bool filtered);
  ExpressionPointer primary();
  ExpressionPointer postfix(ExpressionPointer of);
  ExpressionPointer filters_and_tests(ExpressionPointer of);
  ExpressionPointer test(ExpressionPointer of);
  ExpressionPointer subscript(ExpressionPointer of);
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
