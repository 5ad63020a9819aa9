// SPDX-License-Identifier: Apache-2.0
/// @file
/// Runs a template over variables, within bounds of steps, depth and output.
#pragma once

#include <cstddef>
#include <cstdint>
#include <ctime>
#include <map>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "syntax.hpp"

namespace fsdp::text::jinja {

inline constexpr std::int64_t most_steps = 5'000'000;  ///< expressions, statements, loops' turns and the like
inline constexpr int most_depth = 1000;                ///< of those within one another
inline constexpr std::int64_t most_range = 100'000;    ///< items of range(), as Jinja's sandbox has it

/// Names and what they stand for, within others that enclose them.
struct Scope {
  std::map<std::string, Value, std::less<>> values = {};
  std::shared_ptr<Scope> outer = nullptr;
};

class Runner {
 public:
  /// `variables`: a dict; `clock`: what strftime_now() tells, in local time.
  Runner(const Value& variables, const std::tm& clock);
  ~Runner();
  Runner(const Runner&) = delete;
  Runner& operator=(const Runner&) = delete;

  void run(const Program& program);

  const std::string& text() const { return out_; }
  const std::vector<std::pair<std::size_t, std::size_t>>& generations() const {
    return generations_;
  }                                   ///< bytes of text()
  int line() const { return line_; }  ///< of what ran last

  // For the functions that a template calls.
  const std::tm& clock() const { return clock_; }
  Value make_namespace(Dict members);

 private:
  enum class Flow : std::uint8_t { next, leave, again };  // behind a statement; the last two end a loop's turn
  class Step;

  void count(std::size_t steps);
  void count_parts(const Value& of) { count(parts_of(of)); }
  void count_parts(const CallArguments& arguments);
  static std::size_t parts_of(const Value& of);  // that a filter may look at

  Flow run_body(const Body& body);
  Flow run_one(const Statement& statement);
  Flow run_node(const For& loop);
  Flow run_node(const If& branches);
  Flow run_node(const With& block);
  void run_node(const CallBlock& block);
  void run_node(const Generation& block);
  std::string captured(const Body& body);
  Value filtered(std::string text, const std::vector<Filter>& filters);
  Value function_of(const Macro& macro);
  Value call_macro(const Macro& macro, const std::shared_ptr<Scope>& outer, const CallArguments& arguments);

  Value evaluate(const Expression& expression);
  Value evaluate_node(const Literal& node) { return node.value; }
  Value evaluate_node(const Name& node) const;
  Value evaluate_node(const ListOf& node);
  Value evaluate_node(const DictOf& node);
  Value evaluate_node(const Unary& node);
  Value evaluate_node(const Binary& node);
  Value evaluate_node(const Comparison& node);
  Value evaluate_node(const Conditional& node);
  Value evaluate_node(const Attribute& node);
  Value evaluate_node(const Item& node);
  Value evaluate_node(const Slice& node);
  Value evaluate_node(const Call& node);
  Value evaluate_node(const Filter& node);
  Value evaluate_node(const Test& node);
  CallArguments evaluate_all(const Arguments& arguments);
  Value call(const Value& function, const CallArguments& arguments);

  void assign(const Target& target, const Value& value);
  void print(const std::string& text);

  std::tm clock_;
  std::shared_ptr<Scope> scope_ = std::make_shared<Scope>();
  std::vector<std::shared_ptr<Namespace>> namespaces_;  // emptied at the end, since they may hold one another
  std::string out_;
  std::vector<std::pair<std::size_t, std::size_t>> generations_;
  std::int64_t steps_ = 0;
  int depth_ = 0;
  int line_ = 0;
};

/// a + b, a * b and the like, as Python has them for numbers, texts and lists.
Value operate(BinaryOperator kind, const Value& a, const Value& b);

/// of[begin:end:step]; none of the last three stands for what Python takes then.
Value slice_of(const Value& of, const Value& begin, const Value& end, const Value& step);

}  // namespace fsdp::text::jinja
