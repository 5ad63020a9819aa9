// SPDX-License-Identifier: Apache-2.0
/// @file
/// Runs a template with variables, within limits on depth and output; its values spend steps and memory, see
/// value.hpp.
#pragma once

#include <cstdint>
#include <ctime>
#include <map>
#include <memory>
#include <string>
#include <vector>

#include <tessera/text/chat_template.hpp>

#include "syntax/syntax.hpp"

namespace fsdp::text::jinja {

inline constexpr int most_depth = 1000;              ///< nesting depth of expressions and statements
inline constexpr std::int64_t most_range = 100'000;  ///< items of range(), as in Jinja's sandbox

/// The variables of a scope, and the enclosing scope.
struct Scope {
  std::map<std::string, Value, std::less<>> values = {};
  std::shared_ptr<Scope> outer = nullptr;
};

class Runner {
 public:
  /// `variables`: a dict. `clock`: the local time for strftime_now().
  Runner(const Value& variables, const std::tm& clock);
  ~Runner();
  Runner(const Runner&) = delete;
  Runner& operator=(const Runner&) = delete;

  const std::string& text() const { return out_; }
  const std::vector<TextRange>& generations() const { return generations_; }  ///< {% generation %} blocks in text()
  int line() const { return line_; }  ///< line of the expression or statement that ran last

  // For functions that a template calls.
  const std::tm& clock() const { return clock_; }
  Value make_namespace(Dict members);

  // For expressions and statements.
  Value evaluate(const Expression& expression);
  CallArguments evaluate_all(const Arguments& arguments);
  Value value_of(const std::string& name) const;
  Value call(const Value& function, const CallArguments& arguments);
  Flow run_body(const Body& body);
  Flow run_loop(const For& loop);
  Flow run_with(const With& block);
  void run_generation(const Body& body);
  Value filtered(const Body& body, const std::vector<Filter>& filters);  ///< applies filters to the text of a body
  Value function_of(const std::shared_ptr<const Macro>& macro);
  void assign(const Target& target, const Value& value);
  void print(const std::string& text);

 private:
  /// Runs one expression or statement; spends a step and limits the depth.
  template <class Run>
  auto counted(int line, const Run& run) {
    line_ = line;
    spend(1);
    if (depth_ >= most_depth) refuse("calls are more than ", most_depth, " deep");
    ++depth_;
    auto result = run(*this);
    --depth_;
    return result;
  }
  /// Runs a body in a new scope. Returns its text.
  std::string captured(const Body& body);
  Value call_macro(const Macro& macro, const std::shared_ptr<Scope>& outer, const CallArguments& arguments);

  std::tm clock_;
  std::shared_ptr<Scope> scope_ = std::make_shared<Scope>();
  std::vector<std::shared_ptr<Namespace>> namespaces_;  // cleared at the end, since they may refer to each other
  std::string out_;
  std::vector<TextRange> generations_;
  int depth_ = 0;
  int line_ = 0;
};

enum class BinaryOperator : std::uint8_t { add, subtract, multiply, divide, floor, modulo, power, join };

/// Evaluates a + b, a * b and the like with Python's semantics for numbers, texts and lists.
Value operate(BinaryOperator kind, const Value& a, const Value& b);

/// Evaluates of[begin:end:step]. Each of `begin`, `end` and `step` has Python's default if it is none.
Value slice_of(const Value& of, const Value& begin, const Value& end, const Value& step);

}  // namespace fsdp::text::jinja
