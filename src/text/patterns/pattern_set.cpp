// SPDX-License-Identifier: Apache-2.0
// Reads escapes and sets of a pattern.
#include <optional>
#include <string>

#include "../../fsdp/core/strings.hpp"
#include "../unicode/unicode_sets.hpp"
#include "pattern.hpp"

namespace fsdp::text {
namespace {

std::optional<unsigned> hexadecimal(char c) { return parsed<unsigned>({&c, 1}, 16); }
/// Reads `least` to `most` hexadecimal digits.
char32_t read_code(PatternReader& reader, int least, int most) {
  char32_t code = 0;
  int digits = 0;
  while (digits < most && !reader.at_end() && hexadecimal(reader.peek())) {
    code = code * 16 + *hexadecimal(reader.peek());
    reader.next();
    ++digits;
  }
  if (digits < least || code >= code_point_end || (code >= 0xD800 && code < 0xE000))
    reader.refuse("names no code point; write \\xHH, \\x{H...} or \\uHHHH");
  return code;
}

CodePointSet read_property(PatternReader& reader, bool complement) {
  if (!reader.take("{")) reader.refuse("has \\p without {...}");
  if (reader.take("^")) complement = !complement;
  std::string name;
  while (!reader.at_end() && reader.peek() != '}') append_utf8(name, reader.next());
  if (!reader.take("}")) reader.refuse("has \\p{ without }");
  const std::optional<CodePointSet> set = property_set(name);
  if (!set)
    reader.refuse("asks for \\p{" + name + "}; there are general categories, Han, Hiragana, Katakana and Hangul");
  return complement ? ~*set : *set;
}

Escape of_set(const CodePointSet& set, bool complement) { return {.set = complement ? ~set : set}; }
Escape of_code(char32_t code) { return {.set = single(code), .single = true, .code = code}; }

/// Adds the other case of every ASCII letter in the set.
CodePointSet with_both_cases(const CodePointSet& set, const PatternReader& reader) {
  CodePointSet all;
  for (const CodePointRange& range : set.ranges()) {
    if (range.end > 0x80) reader.refuse("has more than ASCII in a set where case is ignored, which is not supported");
    for (char32_t code = range.begin; code < range.end; ++code) all = all | both_cases(code, reader);
  }
  return all;
}

}  // namespace

CodePointSet single(char32_t code) { return CodePointSet({{code, code + 1}}); }

CodePointSet both_cases(char32_t code, const PatternReader& reader) {
  if (code >= 0x80) reader.refuse("has more than ASCII where case is ignored, which is not supported");
  const char32_t lower = code | 0x20;
  if (lower < 'a' || lower > 'z') return single(code);
  CodePointSet set = single(lower) | single(lower - 0x20);
  if (lower == 's') set = set | single(0x17F);   // long s
  if (lower == 'k') set = set | single(0x212A);  // Kelvin
  return set;
}

Escape read_escape(PatternReader& reader) {
  if (reader.at_end()) reader.refuse("ends with a backslash");
  constexpr std::string_view letters = "nrtfvae", meanings = "\n\r\t\f\v\a\x1B";
  const char32_t code = reader.next();
  if (code < 0x80)
    if (const std::size_t found = letters.find(static_cast<char>(code)); found != letters.npos)
      return of_code(static_cast<unsigned char>(meanings[found]));
  switch (code) {
    case 's':
    case 'S': return of_set(unicode_set("space"), code == 'S');
    case 'w':
    case 'W': return of_set(unicode_set("word"), code == 'W');
    case 'd':
    case 'D': return of_set(*property_set("Nd"), code == 'D');
    case 'p':
    case 'P': return {.set = read_property(reader, code == 'P')};
    case 'u': return of_code(read_code(reader, 4, 4));
    case 'x': {
      if (!reader.take("{")) {
        const char32_t byte = read_code(reader, 2, 2);
        if (byte >= 0x80) reader.refuse("has \\x with a byte that is no code point; write \\u and four digits");
        return of_code(byte);
      }
      const char32_t value = read_code(reader, 1, 6);
      if (!reader.take("}")) reader.refuse("has \\x{ without }");
      return of_code(value);
    }
    default: break;
  }
  const bool named =
      code < 0x80 && (hexadecimal(static_cast<char>(code)) || ((code | 0x20) >= 'a' && (code | 0x20) <= 'z'));
  if (named)
    reader.refuse(
        std::string("has \\") + static_cast<char>(code) +
        "; of letters and digits there are \\s \\w \\d \\p \\n \\r \\t \\f \\v \\a \\e \\x \\u after a backslash");
  return of_code(code);
}

CodePointSet read_set(PatternReader& reader, bool ignore_case, int depth) {
  if (depth > 50) reader.refuse("has sets nested too deep");
  const bool complement = reader.take("^");
  if (reader.sees("]")) reader.refuse("has a set that begins with ]; write \\] for the character");
  if (complement && ignore_case) reader.refuse("has [^...] where case is ignored, which is not supported");
  std::optional<CodePointSet> both;  // intersection of the operands of && so far
  CodePointSet set;
  bool is_empty = true;
  while (!reader.take("]")) {
    if (reader.at_end()) reader.refuse("has [ without ]");
    if (reader.sees("[:")) reader.refuse("has a set with [:...:]; write \\p{...}");
    if (reader.take("&&")) {
      if (is_empty || reader.sees("]")) reader.refuse("has && with nothing on one side");
      both = both ? *both & set : set;
      set = {};
      is_empty = true;
      continue;
    }
    if (reader.take("[")) {
      set = set | read_set(reader, ignore_case, depth + 1);
      is_empty = false;
      continue;
    }
    if (reader.sees("-") && !is_empty) {
      reader.take("-");
      if (!reader.sees("]")) reader.refuse("has - behind a set or a range; write \\- for the character");
      set = set | single('-');
      continue;
    }
    is_empty = false;
    const char32_t code = reader.next();
    const Escape first = code == '\\' ? read_escape(reader) : of_code(code);
    if (!first.single && ignore_case) reader.refuse("has a set by name where case is ignored, which is not supported");
    if (!reader.sees("-") || reader.sees("-]")) {
      set = set | first.set;
      continue;
    }
    reader.take("-");
    if (reader.at_end() || reader.sees("[") || !first.single) reader.refuse("has a range without a last character");
    const char32_t next = reader.next();
    const Escape last = next == '\\' ? read_escape(reader) : of_code(next);
    if (!last.single || last.code < first.code) reader.refuse("has a range whose ends are not two characters in order");
    set = set | CodePointSet({{first.code, last.code + 1}});
  }
  if (both) {
    if (is_empty) reader.refuse("has && with nothing on one side");
    set = *both & set;
  }
  if (ignore_case) set = with_both_cases(set, reader);
  return complement ? ~set : set;
}

}  // namespace fsdp::text
