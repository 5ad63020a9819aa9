// SPDX-License-Identifier: Apache-2.0
#include "syntax.hpp"

#include <algorithm>
#include <initializer_list>
#include <map>

#include "../runner.hpp"

namespace fsdp::text::jinja {
namespace {

constexpr int most_nested_blocks = 100;

using Run = std::function<Flow(Runner&)>;

/// Returns a function that performs an action, after which the next statement runs.
template <class Action>
Run step(Action action) {
  return [action = std::move(action)](Runner& runner) {
    action(runner);
    return Flow::next;
  };
}

class StatementParser {
 public:
  StatementParser(std::vector<Token> tokens, const std::string& source) : reader_(std::move(tokens), source) {}

  Program run() {
    Program program{.body = body({}), .has_generation = has_generation_};
    if (reader_.now().kind != Kind::end) reader_.refuse("'", reader_.now().text, "' has no begin");
    return program;
  }

 private:
  /// The context of statements, which determines the statements that are allowed.
  struct Place {
    int loops = 0;
    bool captured = false;  // the text is captured in a value
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
        statements.push_back({line, step([text = reader_.take().text](Runner& runner) { runner.print(text); })});
      } else if (kind == Kind::print_begin) {
        reader_.take();
        statements.push_back({line, step([value = reader_.tuple(true)](Runner& runner) {
                                runner.print(runner.evaluate(*value).text());
                              })});
        if (reader_.now().kind != Kind::print_end) reader_.refuse("'}}' is missing");
        reader_.take();
      } else if (kind == Kind::block_begin) {
        reader_.take();
        if (std::ranges::any_of(ends, [&](std::string_view end) { return reader_.at_name(end); })) break;
        const auto begin = reader_.now().line;  // line of the statement's name, which may follow the line of "{%"
        statements.push_back({begin, statement()});
      } else {
        if (ends.size() > 0) reader_.refuse("'", *(ends.end() - 1), "' is missing");
        break;
      }
    }
    --depth_;
    return statements;
  }

  /// Parses statements in another context; also consumes the end tag.
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

  Run statement() {
    static const std::map<std::string_view, Run (StatementParser::*)()> statements = {
        {"break", &StatementParser::end_iteration<Flow::leave>},
        {"call", &StatementParser::call_block},
        {"continue", &StatementParser::end_iteration<Flow::again>},
        {"filter", &StatementParser::filter_block},
        {"for", &StatementParser::loop},
        {"generation", &StatementParser::generation},
        {"if", &StatementParser::branches},
        {"macro", &StatementParser::macro},
        {"set", &StatementParser::set},
        {"with", &StatementParser::with},
    };
    if (reader_.now().kind != Kind::name) reader_.refuse("a statement's name is missing behind '{%'");
    const std::string& name = reader_.now().text;
    const auto found = statements.find(name);
    if (found == statements.end()) reader_.refuse("the statement '", name, "' is not known");
    if ((name == "break" || name == "continue") && place_.loops == 0) reader_.refuse("'", name, "' stands in no loop");
    if (name == "generation" && place_.captured)
      reader_.refuse("a generation block within a macro, a filter or a set block is not known");
    reader_.take();
    return (this->*found->second)();
  }

  template <Flow flow>
  Run end_iteration() {
    end_block();
    return [](Runner&) { return flow; };
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

  Run loop() {
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
    return [loop = std::move(loop)](Runner& runner) { return runner.run_loop(loop); };
  }

  Run branches() {
    std::vector<std::pair<ExpressionPointer, Body>> branches;
    Body otherwise;
    do {
      ExpressionPointer condition = reader_.tuple(false);
      end_block();
      branches.emplace_back(std::move(condition), body({"elif", "else", "endif"}));
    } while (reader_.skip_name("elif"));
    if (reader_.skip_name("else")) {
      end_block();
      otherwise = body({"endif"});
    }
    reader_.take();
    end_block();
    return [branches = std::move(branches), otherwise = std::move(otherwise)](Runner& runner) {
      for (const auto& [condition, body] : branches)
        if (runner.evaluate(*condition).truth()) return runner.run_body(body);
      return runner.run_body(otherwise);
    };
  }

  std::vector<Filter> filters() {
    std::vector<Filter> filters;
    do filters.push_back(reader_.filter());
    while (reader_.skip_sign("|"));
    return filters;
  }

  Run set() {
    Target to = target();
    if (reader_.skip_sign("=")) {
      const ExpressionPointer value = reader_.tuple(true);
      end_block();
      return step([to = std::move(to), value](Runner& runner) { runner.assign(to, runner.evaluate(*value)); });
    }
    std::vector<Filter> used = reader_.skip_sign("|") ? filters() : std::vector<Filter>();
    end_block();
    Body body = inner("endset", {.loops = place_.loops, .captured = true});  // moved below, since it may be deep
    return step([to = std::move(to), used = std::move(used), body = std::move(body)](Runner& runner) {
      runner.assign(to, runner.filtered(body, used));
    });
  }

  std::vector<std::pair<std::string, ExpressionPointer>> parameters() {
    std::vector<std::pair<std::string, ExpressionPointer>> parameters;
    reader_.expect_sign("(");
    while (!reader_.at_sign(")")) {
      if (!parameters.empty()) reader_.expect_sign(",");
      std::string name = reader_.take_name("a parameter's name");
      ExpressionPointer otherwise = reader_.skip_sign("=") ? reader_.expression() : nullptr;
      if (otherwise == nullptr && !parameters.empty() && parameters.back().second != nullptr)
        reader_.refuse("the parameter '", name, "' without a default follows one with a default");
      parameters.emplace_back(std::move(name), std::move(otherwise));
    }
    reader_.take();
    return parameters;
  }

  Run macro() {
    Macro macro{.name = reader_.take_name("a macro's name"), .parameters = parameters(), .body = {}};
    end_block();
    macro.body = inner("endmacro", {.loops = 0, .captured = true});
    return step([made = std::make_shared<const Macro>(std::move(macro))](Runner& runner) {
      runner.assign({.name = made->name}, runner.function_of(made));
    });
  }

  Run call_block() {
    Macro caller{.name = "caller", .parameters = {}, .body = {}};
    if (reader_.at_sign("(")) caller.parameters = parameters();
    const std::shared_ptr<const Call> call = reader_.expression()->call;
    if (call == nullptr) reader_.refuse("'call' takes the call of a macro");
    end_block();
    caller.body = inner("endcall", {.loops = 0, .captured = true});
    return step([call, made = std::make_shared<const Macro>(std::move(caller))](Runner& runner) {
      const Value function = runner.evaluate(*call->of);
      CallArguments arguments = runner.evaluate_all(call->arguments);
      arguments.named.emplace_back("caller", runner.function_of(made));
      runner.print(runner.call(function, arguments).text());
    });
  }

  Run filter_block() {
    std::vector<Filter> used = filters();
    end_block();
    Body body = inner("endfilter", {.loops = place_.loops, .captured = true});
    return step([used = std::move(used), body = std::move(body)](Runner& runner) {
      runner.print(runner.filtered(body, used).text());
    });
  }

  Run with() {
    With block;
    while (reader_.now().kind != Kind::block_end) {
      if (!block.values.empty()) reader_.expect_sign(",");
      Target to = one_target();
      reader_.expect_sign("=");
      block.values.emplace_back(std::move(to), reader_.expression());
    }
    end_block();
    block.body = inner("endwith", place_);
    return [block = std::move(block)](Runner& runner) { return runner.run_with(block); };
  }

  Run generation() {
    end_block();
    has_generation_ = true;
    return step([body = inner("endgeneration", place_)](Runner& runner) { runner.run_generation(body); });
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
