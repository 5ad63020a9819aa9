// SPDX-License-Identifier: Apache-2.0
/// @file
/// Converts values to text: Python's str() and repr(), and JSON.
#include <algorithm>
#include <array>
#include <charconv>
#include <cmath>
#include <cstdio>

#include "../../fsdp/core/json/strict_json.hpp"
#include "../unicode/code_points.hpp"
#include "../unicode/unicode_sets.hpp"
#include "value.hpp"

namespace fsdp::text::jinja {
namespace {

/// Returns whether Python's repr() writes a character beyond ASCII without escaping it.
bool is_printable(char32_t code) {
  static const CodePointSet hidden = *property_set("C") | *property_set("Z");
  return !hidden.contains(code);
}

std::string quoted_text(std::string_view text) {
  const char quote = text.find('\'') != text.npos && text.find('"') == text.npos ? '"' : '\'';
  std::string out(1, quote);
  for (std::size_t at = 0; at < text.size();) {
    const std::size_t begin = at;
    const char32_t code = next_code_point(text, at);
    std::array<char, 12> escape{};
    if (code == static_cast<unsigned char>(quote) || code == '\\') {
      out += {'\\', static_cast<char>(code)};
    } else if (code == '\n' || code == '\r' || code == '\t') {
      out += code == '\n' ? "\\n" : code == '\r' ? "\\r" : "\\t";
    } else if ((code >= 0x20 && code < 0x7F) || (code > 0x7F && is_printable(code))) {
      out += text.substr(begin, at - begin);
    } else {
      const char* format = code < 0x100 ? "\\x%02x" : code < 0x10000 ? "\\u%04x" : "\\U%08x";
      std::snprintf(escape.data(), escape.size(), format, static_cast<unsigned>(code));
      out += escape.data();
    }
  }
  return out + quote;
}

std::string print_list(const List& list) {
  std::string out;
  for (const Value& item : list.items) out += (out.empty() ? "" : ", ") + item.representation();
  if (!list.tuple) return "[" + out + "]";
  return "(" + out + (list.items.size() == 1 ? ",)" : ")");
}

std::string print_dict(const Dict& dict) {
  std::string out;
  for (const auto& [key, value] : dict.items)
    out += (out.empty() ? "" : ", ") + key.representation() + ": " + value.representation();
  return "{" + out + "}";
}

/// Prints a number as Python's repr() does.
std::string print_float(double value) {
  if (std::isnan(value)) return "nan";
  if (std::isinf(value)) return value > 0 ? "inf" : "-inf";
  std::array<char, 40> room{};
  const auto end = std::to_chars(room.data(), room.data() + room.size(), value, std::chars_format::scientific).ptr;
  const std::string_view shortest(room.data(), static_cast<std::size_t>(end - room.data()));
  const std::size_t e = shortest.find('e');
  const int exponent = std::stoi(std::string(shortest.substr(e + 1)));
  if (exponent < -4 || exponent >= 16) return std::string(shortest);
  const auto fixed = std::to_chars(room.data(), room.data() + room.size(), value, std::chars_format::fixed).ptr;
  std::string out(room.data(), fixed);
  return out.find('.') == out.npos ? out + ".0" : out;
}

class JsonWriter {
 public:
  JsonWriter(std::string& out, const JsonStyle& style) : out_(out), style_(style) {}

  void write(const Value& value, int depth) {  // NOLINT(misc-no-recursion): as deep as the value
    require_short(out_);
    if (const std::string* text = value.as_text()) {
      out_ += json_text(nlohmann::json(*text), style_.ascii);
    } else if (value.is_none()) {
      out_ += "null";
    } else if (const bool* truth = value.get<bool>()) {
      out_ += *truth ? "true" : "false";
    } else if (const double* number = value.get<double>()) {
      out_ += std::isnan(*number)   ? "NaN"
              : std::isinf(*number) ? (*number > 0 ? "Infinity" : "-Infinity")
                                    : print_float(*number);
    } else if (value.is_number()) {
      out_ += value.text();
    } else if (const List* list = value.as_list()) {
      write_all('[', ']', list->items, depth, [&](const Value& item) { write(item, depth + 1); });
    } else if (const Dict* dict = value.as_dict()) {
      write_dict(*dict, depth);
    } else {
      refuse("tojson: ", value.kind_name(), " cannot be written as JSON");
    }
  }

 private:
  template <class Items, class Write>
  void write_all(char open, char close, const Items& items, int depth, const Write& write_one) {
    out_ += open;
    bool first = true;
    for (const auto& item : items) {
      if (!first) out_ += style_.item_separator;
      first = false;
      new_line(depth + 1);
      write_one(item);
    }
    if (!items.empty()) new_line(depth);
    out_ += close;
  }

  void write_dict(const Dict& dict, int depth) {  // NOLINT(misc-no-recursion)
    std::vector<std::pair<std::string, Value>> members;
    for (const auto& [key, value] : dict.items) members.emplace_back(key_text(key), value);
    if (style_.sort_keys) {
      std::stable_sort(members.begin(), members.end(), [](const auto& a, const auto& b) { return a.first < b.first; });
    }
    write_all('{', '}', members, depth, [&](const auto& member) {
      out_ += json_text(nlohmann::json(member.first), style_.ascii) + style_.key_separator;
      write(member.second, depth + 1);
    });
  }

  static std::string key_text(const Value& key) {
    if (key.as_text() != nullptr) return *key.as_text();
    if (key.is_none()) return "null";
    if (const bool* truth = key.get<bool>()) return *truth ? "true" : "false";
    if (!key.is_number()) refuse("tojson: ", key.kind_name(), " cannot be a key");
    return key.text();
  }

  void new_line(int depth) {
    if (style_.indent >= 0) out_.append("\n").append(static_cast<std::size_t>(depth * style_.indent), ' ');
  }

  std::string& out_;
  const JsonStyle& style_;
};

}  // namespace

std::string Value::text() const {
  if (is_undefined()) return {};
  if (const std::string* value = as_text()) return *value;
  spend(weight() / 4);
  return representation();
}

std::string Value::representation() const {  // NOLINT(misc-no-recursion): as deep as the value
  if (is_undefined()) return "Undefined";
  if (is_none()) return "None";
  if (const bool* value = get<bool>()) return *value ? "True" : "False";
  if (const std::int64_t* value = get<std::int64_t>()) return std::to_string(*value);
  if (const double* value = get<double>()) return print_float(*value);
  if (const BigInteger* value = get<BigInteger>()) return value->digits;
  if (const std::string* value = as_text()) return quoted_text(*value);
  if (const List* value = as_list()) return print_list(*value);
  if (const Dict* value = as_dict()) return print_dict(*value);
  refuse(kind_name(), " cannot be printed");
}

std::string to_json(const Value& value, const JsonStyle& style) {
  spend(value.weight() / 4);
  std::string out;
  JsonWriter(out, style).write(value, 0);
  return out;
}

}  // namespace fsdp::text::jinja
