// SPDX-License-Identifier: Apache-2.0
/// @file
/// A parsed template: expressions and statements, each with the function that runs it.
#pragma once

#include <cstdint>
#include <functional>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "../value.hpp"

namespace fsdp::text::jinja {

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

}  // namespace fsdp::text::jinja
