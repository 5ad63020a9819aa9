// SPDX-License-Identifier: Apache-2.0
/// @file
/// Evaluates expressions: a part of Runner.

#include "builtins.hpp"
#include "runner.hpp"

namespace fsdp::text::jinja {
namespace {

bool holds(Relation relation, const Value& a, const Value& b) {
  switch (relation) {
    case Relation::equal: return a == b;
    case Relation::unequal: return !(a == b);
    case Relation::less: return is_less(a, b);
    case Relation::at_most: return !is_less(b, a);
    case Relation::greater: return is_less(b, a);
    case Relation::at_least: return !is_less(a, b);
    case Relation::in: return contains(b, a);
    case Relation::not_in: return !contains(b, a);
  }
  return false;
}

}  // namespace

Value Runner::evaluate(const Expression& expression) {  // NOLINT(misc-no-recursion): as deep as the template
  return counted(expression.line,
                 [&] { return std::visit([&](const auto& node) { return evaluate_node(node); }, expression.node); });
}

Value Runner::evaluate_node(const Name& node) const {
  std::size_t looked_at = 0;
  for (const Scope* scope = scope_.get(); scope != nullptr; scope = scope->outer.get()) {
    if (++looked_at % 8 == 0) spend(1);
    const auto found = scope->values.find(node.name);
    if (found != scope->values.end()) return found->second;
  }
  const std::optional<Value> known = global(node.name);
  return known ? *known : Value(Undefined{node.name});
}

Value Runner::evaluate_node(const ListOf& node) {  // NOLINT(misc-no-recursion)
  std::vector<Value> items;
  for (const ExpressionPointer& item : node.items) items.push_back(evaluate(*item));
  return Value::list(std::move(items), node.tuple);
}

Value Runner::evaluate_node(const DictOf& node) {  // NOLINT(misc-no-recursion)
  Dict dict;
  for (const auto& [key, value] : node.items) {
    Value name = evaluate(*key);
    dict.set(std::move(name), evaluate(*value));
  }
  return Value::dict(std::move(dict));
}

Value Runner::evaluate_node(const Unary& node) {  // NOLINT(misc-no-recursion)
  const Value value = evaluate(*node.of);
  if (node.kind == UnaryOperator::negation) return !value.truth();
  if (!value.is_number()) refuse(value.kind_name(), " has no sign");
  return node.kind == UnaryOperator::plus ? operate(BinaryOperator::add, std::int64_t{0}, value)
                                          : operate(BinaryOperator::multiply, std::int64_t{-1}, value);
}

Value Runner::evaluate_node(const Binary& node) {  // NOLINT(misc-no-recursion)
  Value left = evaluate(*node.left);
  if (node.kind == BinaryOperator::both) return left.truth() ? evaluate(*node.right) : left;
  if (node.kind == BinaryOperator::either) return left.truth() ? left : evaluate(*node.right);
  return operate(node.kind, left, evaluate(*node.right));
}

Value Runner::evaluate_node(const Comparison& node) {  // NOLINT(misc-no-recursion)
  Value left = evaluate(*node.first);
  for (const auto& [relation, next] : node.rest) {
    Value right = evaluate(*next);
    if (!holds(relation, left, right)) return false;
    left = std::move(right);
  }
  return true;
}

Value Runner::evaluate_node(const Conditional& node) {  // NOLINT(misc-no-recursion)
  if (evaluate(*node.condition).truth()) return evaluate(*node.value);
  return node.otherwise == nullptr ? Value() : evaluate(*node.otherwise);
}

Value Runner::evaluate_node(const Attribute& node) {  // NOLINT(misc-no-recursion)
  return attribute_of(evaluate(*node.of), node.name);
}

Value Runner::evaluate_node(const Item& node) {  // NOLINT(misc-no-recursion)
  const Value of = evaluate(*node.of);
  return item_of(of, evaluate(*node.key));
}

Value Runner::evaluate_node(const Slice& node) {  // NOLINT(misc-no-recursion)
  const auto part = [&](const ExpressionPointer& of) { return of == nullptr ? Value::none() : evaluate(*of); };
  const Value of = evaluate(*node.of);
  const Value begin = part(node.begin), end = part(node.end);
  return slice_of(of, begin, end, part(node.step));
}

Value Runner::evaluate_node(const Call& node) {  // NOLINT(misc-no-recursion)
  const Value function = evaluate(*node.of);
  return call(function, evaluate_all(node.arguments));
}

Value Runner::evaluate_node(const Filter& node) {  // NOLINT(misc-no-recursion)
  const Value of = evaluate(*node.of);
  return apply_filter(*this, node.name, of, evaluate_all(node.arguments));
}

Value Runner::evaluate_node(const Test& node) {  // NOLINT(misc-no-recursion)
  const Value of = evaluate(*node.of);
  return passes_test(node.name, of, evaluate_all(node.arguments));
}

CallArguments Runner::evaluate_all(const Arguments& arguments) {  // NOLINT(misc-no-recursion)
  CallArguments values;
  for (const ExpressionPointer& argument : arguments.positional) values.positional.push_back(evaluate(*argument));
  for (const auto& [name, argument] : arguments.named) values.named.emplace_back(name, evaluate(*argument));
  return values;
}

Value Runner::call(const Value& function, const CallArguments& arguments) {
  const auto* known = function.get<std::shared_ptr<const Function>>();
  if (known == nullptr) refuse(function.kind_name(), " cannot be called");
  const std::shared_ptr<const Function> held = *known;
  return held->call(*this, arguments);
}

}  // namespace fsdp::text::jinja
