// SPDX-License-Identifier: Apache-2.0
/// @file
/// Operators and slices with Python's semantics.
#include <algorithm>
#include <cmath>

#include "../unicode/code_points.hpp"
#include "runner.hpp"
#include "strings.hpp"

namespace fsdp::text::jinja {
namespace {

__extension__ using Wide = __int128;

/// Returns a sum, difference or product of two integers, which must fit 63 bits.
std::int64_t exact(Wide result) {
  if (result != static_cast<std::int64_t>(result)) refuse("a number of more than 63 bits");
  return static_cast<std::int64_t>(result);
}

std::int64_t power_of(std::int64_t base, std::int64_t exponent) {
  std::int64_t result = 1;
  for (; exponent > 0; exponent >>= 1) {
    if ((exponent & 1) != 0) result = exact(Wide{result} * base);
    if (exponent > 1) base = exact(Wide{base} * base);
  }
  return result;
}

bool divides(BinaryOperator kind) {
  return kind == BinaryOperator::divide || kind == BinaryOperator::floor || kind == BinaryOperator::modulo;
}

Value of_wholes(BinaryOperator kind, std::int64_t a, std::int64_t b) {
  if (divides(kind) && b == 0) refuse("division by zero");
  switch (kind) {
    case BinaryOperator::add: return exact(Wide{a} + b);
    case BinaryOperator::subtract: return exact(Wide{a} - b);
    case BinaryOperator::multiply: return exact(Wide{a} * b);
    case BinaryOperator::divide: return static_cast<double>(a) / static_cast<double>(b);
    case BinaryOperator::floor:
      if (b == -1) return exact(-Wide{a});
      return a / b - (a % b != 0 && (a < 0) != (b < 0) ? 1 : 0);
    case BinaryOperator::modulo:
      if (b == -1) return std::int64_t{0};
      return a % b + (a % b != 0 && (a < 0) != (b < 0) ? b : 0);
    default: break;
  }
  if (b < 0 && a == 0) refuse("division by zero");
  if (b < 0) return std::pow(static_cast<double>(a), static_cast<double>(b));
  return power_of(a, b);
}

Value of_reals(BinaryOperator kind, double a, double b) {
  if (divides(kind) && b == 0) refuse("division by zero");
  const double remainder = divides(kind) ? std::fmod(a, b) : 0;
  const double modulo = remainder != 0 && (remainder < 0) != (b < 0)
                            ? remainder + b
                            : std::copysign(remainder, remainder != 0 ? remainder : b);
  switch (kind) {
    case BinaryOperator::add: return a + b;
    case BinaryOperator::subtract: return a - b;
    case BinaryOperator::multiply: return a * b;
    case BinaryOperator::divide: return a / b;
    case BinaryOperator::floor: return std::round((a - modulo) / b);
    case BinaryOperator::modulo: return modulo;
    default: break;
  }
  const double result = std::pow(a, b);
  if (!std::isfinite(result) && std::isfinite(a) && std::isfinite(b)) refuse("the power is no number");
  return result;
}

/// Returns `count` as a number of repetitions, checked against the size limit for a value of this weight.
std::size_t times(std::size_t weight, const Value& count) {
  const std::int64_t n = std::max<std::int64_t>(count.integer("how often"), 0);
  if (weight > 0 && static_cast<std::uint64_t>(n) > most_text / weight)
    refuse("a value becomes larger than ", most_text, " bytes");
  return static_cast<std::size_t>(n);
}

/// Repeats a text or a list; returns nothing if neither side is one.
std::optional<Value> repeated(const Value& a, const Value& b) {
  const bool is_first = a.as_text() != nullptr || a.as_list() != nullptr;
  const Value& what = is_first ? a : b;
  const Value& count = is_first ? b : a;
  if (const std::string* text = what.as_text()) {
    std::string out;
    std::size_t n = times(text->size() + 1, count);
    spend(n * (text->size() + 1) / 16);
    for (; n > 0; --n) out += *text;
    return out;
  }
  if (const List* list = what.as_list()) {
    std::vector<Value> items;
    std::size_t n = times(list->extent.weight, count);
    spend(n * (list->items.size() + 1));
    for (; n > 0; --n) items.insert(items.end(), list->items.begin(), list->items.end());
    return Value::list(std::move(items), list->tuple);
  }
  return std::nullopt;
}

constexpr std::string_view signs[] = {"+", "-", "*", "/", "//", "%", "**", "~"};  // by operator

}  // namespace

Value operate(BinaryOperator kind, const Value& a, const Value& b) {
  if (kind == BinaryOperator::join) return a.text() + b.text();
  if (a.is_number() && b.is_number()) {
    const bool real = a.get<double>() != nullptr || b.get<double>() != nullptr;
    return real ? of_reals(kind, a.number(""), b.number("")) : of_wholes(kind, a.integer(""), b.integer(""));
  }
  if (kind == BinaryOperator::add && a.as_text() != nullptr && b.as_text() != nullptr)
    return *a.as_text() + *b.as_text();
  if (kind == BinaryOperator::add && a.as_list() != nullptr && b.as_list() != nullptr) {
    std::vector<Value> items = a.as_list()->items;
    items.insert(items.end(), b.as_list()->items.begin(), b.as_list()->items.end());
    return Value::list(std::move(items), a.as_list()->tuple);
  }
  if (kind == BinaryOperator::multiply)
    if (std::optional<Value> value = repeated(a, b)) return *std::move(value);
  if (kind == BinaryOperator::modulo && a.as_text() != nullptr) refuse("formatting a text by % is not known");
  refuse(a.kind_name(), " and ", b.kind_name(), " have no '", signs[static_cast<std::size_t>(kind)], "'");
}

Value slice_of(const Value& of, const Value& begin, const Value& end, const Value& step) {
  const std::string* text = of.as_text();
  if (text == nullptr && of.as_list() == nullptr) refuse(of.kind_name(), " cannot be cut");
  const std::vector<Value> items = items_of(of);
  const auto size = static_cast<std::int64_t>(items.size());
  const std::int64_t stride = step.is_none() ? 1 : step.integer("a slice's step");
  if (stride == 0) refuse("a slice's step is 0");
  const std::int64_t lowest = stride > 0 ? 0 : -1, highest = stride > 0 ? size : size - 1;
  const auto place = [&](const Value& value, std::int64_t otherwise) {
    if (value.is_none()) return otherwise;
    const std::int64_t at = value.integer("a slice's bound");
    return std::clamp(at < 0 ? std::max(at, -size - 1) + size : at, lowest, highest);
  };
  const std::int64_t first = place(begin, stride > 0 ? lowest : highest),
                     last = place(end, stride > 0 ? highest : lowest);
  const std::int64_t pace = std::clamp(stride, -size - 1, size + 1);
  std::vector<Value> taken;
  for (std::int64_t i = first; stride > 0 ? i < last : i > last; i += pace)
    taken.push_back(items[static_cast<std::size_t>(i)]);
  if (text == nullptr) return Value::list(std::move(taken), of.as_list()->tuple);
  std::string out;
  for (const Value& character : taken) out += *character.as_text();
  return out;
}

}  // namespace fsdp::text::jinja
