// SPDX-License-Identifier: Apache-2.0
/// @file
/// The syntax tree of a template: expressions and statements.
#pragma once

#include <cstdint>
#include <memory>
#include <string>
#include <utility>
#include <variant>
#include <vector>

#include "../value.hpp"

namespace fsdp::text::jinja {

struct Expression;
using ExpressionPointer = std::unique_ptr<const Expression>;

struct Arguments {
  std::vector<ExpressionPointer> positional;
  std::vector<std::pair<std::string, ExpressionPointer>> named;
};

enum class UnaryOperator : std::uint8_t { negation, minus, plus };
enum class BinaryOperator : std::uint8_t { both, either, add, subtract, multiply, divide, floor, modulo, power, join };
enum class Relation : std::uint8_t { equal, unequal, less, at_most, greater, at_least, in, not_in };

struct Literal {
  Value value;
};
struct Name {
  std::string name;
};
struct ListOf {
  std::vector<ExpressionPointer> items;
  bool tuple = false;
};
struct DictOf {
  std::vector<std::pair<ExpressionPointer, ExpressionPointer>> items;
};
struct Unary {
  UnaryOperator kind;
  ExpressionPointer of;
};
struct Binary {
  BinaryOperator kind;
  ExpressionPointer left, right;
};
struct Comparison {  // a < b < c means a < b and b < c
  ExpressionPointer first;
  std::vector<std::pair<Relation, ExpressionPointer>> rest;
};
struct Conditional {
  ExpressionPointer value, condition, otherwise;  // the last may be null
};
struct Attribute {
  ExpressionPointer of;
  std::string name;
};
struct Item {
  ExpressionPointer of, key;
};
struct Slice {
  ExpressionPointer of, begin, end, step;  // the last three may be null
};
struct Call {
  ExpressionPointer of;
  Arguments arguments;
};
struct Filter {
  ExpressionPointer of;  // null: the text of a block
  std::string name;
  Arguments arguments;
};
struct Test {
  ExpressionPointer of;
  std::string name;
  Arguments arguments;
};

struct Expression {
  int line = 0;
  int depth = 1;  ///< of expressions within expressions
  std::variant<Literal, Name, ListOf, DictOf, Unary, Binary, Comparison, Conditional, Attribute, Item, Slice, Call,
               Filter, Test>
      node;
};

/// Returns the depth of an expression, by that of its parts.
int depth_of(const Expression& expression);

struct Statement;
using Body = std::vector<Statement>;

/// The target of `set` and `for`: a name, a namespace's member, or several of them.
struct Target {
  std::string name = {};
  std::string member = {};
  std::vector<Target> parts = {};
};

struct Text {
  std::string text;
};
struct Print {
  ExpressionPointer value;
};
struct For {
  Target target;
  ExpressionPointer items, condition;  // the last may be null
  Body body, otherwise;
};
struct If {
  std::vector<std::pair<ExpressionPointer, Body>> branches;
  Body otherwise;
};
struct Set {
  Target target;
  ExpressionPointer value;
};
struct SetBlock {
  Target target;
  std::vector<Filter> filters;
  Body body;
};
struct Macro {
  std::string name;
  std::vector<std::pair<std::string, ExpressionPointer>> parameters;  // with their defaults, or null
  Body body;
};
struct CallBlock {
  Macro caller;
  ExpressionPointer call;
};
struct FilterBlock {
  std::vector<Filter> filters;
  Body body;
};
struct With {
  std::vector<std::pair<Target, ExpressionPointer>> values;
  Body body;
};
struct Generation {  // {% generation %}: an answer; transformers' extension for the loss on answers
  Body body;
};
struct Break {};
struct Continue {};

struct Statement {
  int line = 0;
  std::variant<Text, Print, For, If, Set, SetBlock, Macro, CallBlock, FilterBlock, With, Generation, Break, Continue>
      node;
};

struct Program {
  Body body;
  bool has_generation = false;
};

}  // namespace fsdp::text::jinja
