// SPDX-License-Identifier: Apache-2.0
#include "parser.hpp"

#include <initializer_list>

namespace fsdp::text::jinja {
namespace {

constexpr int most_nested_blocks = 100;

class StatementParser {
 public:
  StatementParser(std::vector<Token> tokens, const std::string& source) : reader_(std::move(tokens), source) {}

  Program run() {
    Program program{.body = body({}), .has_generation = has_generation_};
    if (reader_.now().kind != Kind::end) reader_.refuse("'", reader_.now().text, "' has no begin");
    return program;
  }

 private:
  /// The surroundings of statements, which decide what is allowed in them.
  struct Place {
    int loops = 0;
    bool captured = false;  // the text is captured in a value
    bool called = false;    // a macro's body
  };

  /// Parses statements up to a tag whose name is one of `ends`, without consuming the name; or up to the template's
  /// end.
  Body body(std::initializer_list<std::string_view> ends) {
    if (++depth_ > most_nested_blocks) reader_.refuse("blocks are nested more than ", most_nested_blocks, " deep");
    Body statements;
    for (;;) {
      const int line = reader_.now().line;
      const Kind kind = reader_.now().kind;
      if (kind == Kind::text) {
        statements.push_back({line, Text{reader_.take().text}});
      } else if (kind == Kind::print_begin) {
        reader_.take();
        statements.push_back({line, Print{reader_.tuple(true)}});
        if (reader_.now().kind != Kind::print_end) reader_.refuse("'}}' is missing");
        reader_.take();
      } else if (kind == Kind::block_begin) {
        reader_.take();
        for (const std::string_view end : ends) {
          if (!reader_.at_name(end)) continue;
          --depth_;
          return statements;
        }
        statements.push_back(statement());
      } else {
        if (ends.size() > 0) reader_.refuse("'", *(ends.end() - 1), "' is missing");
        --depth_;
        return statements;
      }
    }
  }

  /// The same in other surroundings; also consumes the end tag.
  Body inner(std::string_view end, const Place& place) {
    const Place outer = std::exchange(place_, place);
    Body statements = body({end});
    place_ = outer;
    reader_.take();
    end_block();
    return statements;
  }

  void end_block() {
    if (reader_.now().kind != Kind::block_end) reader_.refuse("'%}' is missing");
    reader_.take();
  }

  Statement statement() {
    const int line = reader_.now().line;
    if (reader_.now().kind != Kind::name) reader_.refuse("a statement's name is missing behind '{%'");
    const std::string name = reader_.now().text;
    if (name == "for") return {line, loop()};
    if (name == "if") return {line, branches()};
    if (name == "set") return set(line);
    if (name == "macro") return {line, macro()};
    if (name == "call") return {line, call_block()};
    if (name == "filter") return {line, filter_block()};
    if (name == "with") return {line, with()};
    if (name == "generation") return {line, generation()};
    if (name == "break" || name == "continue") {
      if (place_.loops == 0) reader_.refuse("'", name, "' stands in no loop");
      reader_.take();
      end_block();
      if (name == "break") return {line, Break{}};
      return {line, Continue{}};
    }
    reader_.refuse("the statement '", name, "' is not known");
  }

  Target target() {
    std::vector<Target> parts;
    bool several = false;
    do {
      if (!parts.empty() && (reader_.at_sign("=") || reader_.at_name("in"))) break;  // after a trailing comma
      parts.push_back(one_target());
      several = several || reader_.at_sign(",");
    } while (reader_.skip_sign(","));
    if (!several) return std::move(parts[0]);
    return {.parts = std::move(parts)};
  }

  Target one_target() {
    if (reader_.skip_sign("(")) {
      if (++depth_ > most_nested_blocks) reader_.refuse("names are nested more than ", most_nested_blocks, " deep");
      Target inner_target = target();
      --depth_;
      reader_.expect_sign(")");
      return inner_target;
    }
    Target one{.name = reader_.take_name("the name that is set")};
    if (reader_.skip_sign(".")) one.member = reader_.take_name("a member's name");
    return one;
  }

  For loop() {
    reader_.take();
    For loop{.target = target(), .items = nullptr, .condition = nullptr, .body = {}, .otherwise = {}};
    reader_.expect_name("in");
    loop.items = reader_.tuple(false);
    if (reader_.skip_name("if")) loop.condition = reader_.expression();
    if (reader_.at_name("recursive")) reader_.refuse("recursive loops are not known");
    end_block();
    ++place_.loops;
    loop.body = body({"else", "endfor"});
    --place_.loops;
    if (reader_.skip_name("else")) {
      end_block();
      loop.otherwise = body({"endfor"});
    }
    reader_.take();
    end_block();
    return loop;
  }

  If branches() {
    If branches;
    do {
      reader_.take();
      ExpressionPointer condition = reader_.tuple(false);
      end_block();
      branches.branches.emplace_back(std::move(condition), body({"elif", "else", "endif"}));
    } while (reader_.at_name("elif"));
    if (reader_.skip_name("else")) {
      end_block();
      branches.otherwise = body({"endif"});
    }
    reader_.take();
    end_block();
    return branches;
  }

  std::vector<Filter> filters() {
    std::vector<Filter> filters;
    do filters.push_back(reader_.filter());
    while (reader_.skip_sign("|"));
    return filters;
  }

  Statement set(int line) {
    reader_.take();
    Target to = target();
    if (reader_.skip_sign("=")) {
      Set set{.target = std::move(to), .value = reader_.tuple(true)};
      end_block();
      return {line, std::move(set)};
    }
    SetBlock block{.target = std::move(to), .filters = {}, .body = {}};
    if (reader_.skip_sign("|")) block.filters = filters();
    end_block();
    block.body = inner("endset", {.loops = place_.loops, .captured = true, .called = place_.called});
    return {line, std::move(block)};
  }

  std::vector<std::pair<std::string, ExpressionPointer>> parameters() {
    std::vector<std::pair<std::string, ExpressionPointer>> parameters;
    reader_.expect_sign("(");
    while (!reader_.at_sign(")")) {
      if (!parameters.empty()) reader_.expect_sign(",");
      std::string name = reader_.take_name("a parameter's name");
      ExpressionPointer otherwise = reader_.skip_sign("=") ? reader_.expression() : nullptr;
      if (otherwise == nullptr && !parameters.empty() && parameters.back().second != nullptr) {
        reader_.refuse("the parameter '", name, "' without a default follows one with a default");
      }
      parameters.emplace_back(std::move(name), std::move(otherwise));
    }
    reader_.take();
    return parameters;
  }

  Macro macro() {
    reader_.take();
    Macro macro{.name = reader_.take_name("a macro's name"), .parameters = parameters(), .body = {}};
    end_block();
    macro.body = inner("endmacro", {.loops = 0, .captured = true, .called = true});
    return macro;
  }

  CallBlock call_block() {
    reader_.take();
    CallBlock block;
    block.caller.name = "caller";
    if (reader_.at_sign("(")) block.caller.parameters = parameters();
    block.call = reader_.expression();
    if (!std::holds_alternative<Call>(block.call->node)) reader_.refuse("'call' takes the call of a macro");
    end_block();
    block.caller.body = inner("endcall", {.loops = 0, .captured = true, .called = true});
    return block;
  }

  FilterBlock filter_block() {
    reader_.take();
    FilterBlock block{.filters = filters(), .body = {}};
    end_block();
    block.body = inner("endfilter", {.loops = place_.loops, .captured = true, .called = place_.called});
    return block;
  }

  With with() {
    reader_.take();
    With block;
    while (reader_.now().kind != Kind::block_end) {
      if (!block.values.empty()) reader_.expect_sign(",");
      Target to = one_target();
      reader_.expect_sign("=");
      block.values.emplace_back(std::move(to), reader_.expression());
    }
    end_block();
    block.body = inner("endwith", place_);
    return block;
  }

  Generation generation() {
    if (place_.captured) reader_.refuse("a generation block within a macro, a filter or a set block is not known");
    reader_.take();
    end_block();
    has_generation_ = true;
    return {inner("endgeneration", place_)};
  }

  ExpressionParser reader_;
  Place place_;
  int depth_ = 0;
  bool has_generation_ = false;
};

}  // namespace

Program parse(std::string_view text, const std::string& source) {
  return StatementParser(tokens_of(text, source), source).run();
}

}  // namespace fsdp::text::jinja
