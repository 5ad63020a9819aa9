// SPDX-License-Identifier: Apache-2.0
#include "syntax.hpp"

#include <algorithm>

namespace fsdp::text::jinja {
namespace {

using Pointer = const ExpressionPointer&;

/// Calls `visit` with the expressions within an expression, some of which may be null.
template <class Visit>
void visit_parts(const Arguments& arguments, const Visit& visit) {
  for (Pointer value : arguments.positional) visit(value);
  for (const auto& [name, value] : arguments.named) visit(value);
}
template <class Visit>
void visit_parts(const Expression& expression, const Visit& visit) {
  const auto each = [&](auto&... parts) { (visit(parts), ...); };
  const auto& node = expression.node;
  if (const auto* list = std::get_if<ListOf>(&node))
    for (Pointer item : list->items) visit(item);
  if (const auto* dict = std::get_if<DictOf>(&node))
    for (const auto& [key, value] : dict->items) each(key, value);
  if (const auto* unary = std::get_if<Unary>(&node)) visit(unary->of);
  if (const auto* binary = std::get_if<Binary>(&node)) each(binary->left, binary->right);
  if (const auto* comparison = std::get_if<Comparison>(&node)) {
    visit(comparison->first);
    for (const auto& [relation, value] : comparison->rest) visit(value);
  }
  if (const auto* choice = std::get_if<Conditional>(&node)) each(choice->value, choice->condition, choice->otherwise);
  if (const auto* attribute = std::get_if<Attribute>(&node)) visit(attribute->of);
  if (const auto* item = std::get_if<Item>(&node)) each(item->of, item->key);
  if (const auto* slice = std::get_if<Slice>(&node)) each(slice->of, slice->begin, slice->end, slice->step);
  const auto applied = [&](const auto* of) {
    if (of == nullptr) return;
    visit(of->of);
    visit_parts(of->arguments, visit);
  };
  applied(std::get_if<Call>(&node));
  applied(std::get_if<Filter>(&node));
  applied(std::get_if<Test>(&node));
}

}  // namespace

int depth_of(const Expression& expression) {
  int depth = 1;
  visit_parts(expression, [&](Pointer part) {
    if (part != nullptr) depth = std::max(depth, part->depth + 1);
  });
  return depth;
}

}  // namespace fsdp::text::jinja
