// SPDX-License-Identifier: Apache-2.0
/// @file
/// Parses patterns: read_pattern of regular_expression.hpp.
#include <optional>
#include <string>
#include <utility>

#include <tessera/fsdp/core/error.hpp>
#include <tessera/fsdp/core/terminal_text.hpp>

#include "../../fsdp/core/strings.hpp"
#include "../unicode/unicode_sets.hpp"
#include "regular_expression.hpp"

namespace fsdp::text {
namespace {

constexpr int most_depth = 50;
constexpr int most_repeats = 1000;

/// Reads a pattern character by character.
class PatternReader {
 public:
  PatternReader(std::string_view pattern, const std::string& source) : pattern_(pattern), source_(source) {}

  bool at_end() const { return at_ == pattern_.size(); }
  bool sees(std::string_view text) const { return pattern_.substr(at_).starts_with(text); }
  /// If `text` is next, consumes it and returns true.
  bool take(std::string_view text) {
    if (!sees(text)) return false;
    at_ += text.size();
    return true;
  }
  char peek() const { return pattern_[at_]; }
  char32_t next() { return next_code_point(pattern_, at_); }  ///< consumes one code point

  /// Throws InputError with the pattern, the position and the problem.
  [[noreturn]] void refuse(std::string_view what) const {
    throw InputError(
        message(source_, ": the regular expression \"", shortened(pattern_), "\" ", what, " (byte ", at_, ")"));
  }

 private:
  std::string_view pattern_;
  const std::string& source_;
  std::size_t at_ = 0;
};

/// An escape: a set (\s, \p{L}) or a single code point (\n, \., \x41).
struct Escape {
  CodePointSet set;
  bool single = false;
  char32_t code = 0;  ///< the code point, if `single`
};

std::optional<unsigned> hexadecimal_digit(char c) { return parsed<unsigned>({&c, 1}, 16); }
/// Reads `least` to `most` hexadecimal digits.
char32_t read_code(PatternReader& reader, int least, int most) {
  char32_t code = 0;
  int digits = 0;
  while (digits < most && !reader.at_end() && hexadecimal_digit(reader.peek())) {
    code = code * 16 + *hexadecimal_digit(reader.peek());
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

CodePointSet single(char32_t code) { return CodePointSet({{code, code + 1}}); }

Escape of_set(const CodePointSet& set, bool complement) { return {.set = complement ? ~set : set}; }
Escape of_code(char32_t code) { return {.set = single(code), .single = true, .code = code}; }

/// Returns a literal and its other case. Supports only ASCII; other characters would need full case folding.
CodePointSet both_cases(char32_t code, const PatternReader& reader) {
  if (code >= 0x80) reader.refuse("has more than ASCII where case is ignored, which is not supported");
  const char32_t lower = code | 0x20;
  if (lower < 'a' || lower > 'z') return single(code);
  CodePointSet set = single(lower) | single(lower - 0x20);
  if (lower == 's') set = set | single(0x17F);   // long s
  if (lower == 'k') set = set | single(0x212A);  // Kelvin
  return set;
}

/// Adds the other case of every ASCII letter in the set.
CodePointSet with_both_cases(const CodePointSet& set, const PatternReader& reader) {
  CodePointSet all;
  for (const CodePointRange& range : set.ranges()) {
    if (range.end > 0x80) reader.refuse("has more than ASCII in a set where case is ignored, which is not supported");
    for (char32_t code = range.begin; code < range.end; ++code) all = all | both_cases(code, reader);
  }
  return all;
}

/// Reads an escape after its '\'.
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
      code < 0x80 && (hexadecimal_digit(static_cast<char>(code)) || ((code | 0x20) >= 'a' && (code | 0x20) <= 'z'));
  if (named)
    reader.refuse(
        std::string("has \\") + static_cast<char>(code) +
        "; of letters and digits there are \\s \\w \\d \\p \\n \\r \\t \\f \\v \\a \\e \\x \\u after a backslash");
  return of_code(code);
}

/// Reads a set after its '['. `depth`: the number of enclosing sets.
CodePointSet read_set(PatternReader& reader, bool ignore_case, int depth = 0) {
  if (depth > most_depth) reader.refuse("has sets nested too deep");
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

/// A recursive descent parser: reads alternatives, sequences, and atoms with quantifiers; writes the parts.
class PatternParser {
 public:
  PatternParser(std::string_view pattern, const std::string& source) : reader_(pattern, source) {}

  std::vector<PatternPart> read() {
    alternatives(false, 0);
    if (!reader_.at_end()) reader_.refuse("has ) without (");
    return std::move(parts_);
  }

 private:
  /// Functions that read a piece of the pattern return whether it can match the empty text.
  bool alternatives(bool ignore_case, int depth) {
    if (depth > most_depth) reader_.refuse("has groups nested too deep");
    last_folded_ = 0;
    bool any_empty = false, empty = true;
    while (!reader_.at_end() && !reader_.sees(")")) {
      if (reader_.take("|")) {
        syntax("|");
        last_folded_ = 0;
        any_empty = any_empty || empty;
        empty = true;
      } else {
        empty = repeated(ignore_case, depth) && empty;
      }
    }
    last_folded_ = 0;
    return any_empty || empty;
  }

  bool repeated(bool ignore_case, int depth) {
    const std::size_t begin = parts_.size();
    const bool empty = atom(ignore_case, depth);
    const std::optional<std::string> many = quantifier();
    if (!many) return empty;
    last_folded_ = 0;
    if (empty) reader_.refuse("repeats what can match nothing, where engines differ");
    if (many->starts_with("{") && reader_.take("+")) {  // in Oniguruma this is not possessive but another repetition
      parts_.insert(parts_.begin() + static_cast<std::ptrdiff_t>(begin), PatternPart{.syntax = "(?:", .set = {}});
      syntax(*many + ")+");
    } else if (reader_.take("?")) {
      if (many->starts_with("{") && many->find(',') == std::string::npos) reader_.refuse("has {n}?");
      syntax(*many + "?");
    } else if (reader_.take("+")) {
      syntax(*many + "+");
    } else {
      syntax(*many);
    }
    if (reader_.sees("*") || reader_.sees("+") || reader_.sees("?") || reader_.sees("{"))
      reader_.refuse("has one quantifier behind another; put a group around what is repeated");
    return *many == "*" || *many == "?" || many->starts_with("{0");
  }

  bool atom(bool ignore_case, int depth) {
    if (reader_.take("(")) return group(ignore_case, depth);
    for (const std::string_view sign : {"^", "$"})
      if (reader_.sees(sign)) reader_.refuse("has an anchor, ^ or $, which is not supported");
    for (const std::string_view sign : {"*", "+", "?", "{"})
      if (reader_.sees(sign)) reader_.refuse("has a quantifier behind nothing; write a backslash before the character");
    if (reader_.take("[")) {
      last_folded_ = 0;
      set(read_set(reader_, ignore_case));
    } else if (reader_.take(".")) {
      last_folded_ = 0;
      set(~single('\n'));
    } else {
      const char32_t code = reader_.next();
      const Escape escape = code == '\\' ? read_escape(reader_) : Escape{single(code), true, code};
      if (ignore_case && !escape.single)
        reader_.refuse("has a set by name where case is ignored, which is not supported");
      set(ignore_case ? folded(escape.code) : escape.set);
    }
    return false;
  }

  /// Returns the set for a literal with case ignored. Refuses pairs that a single code point can match, such as "ss" or
  /// "fi".
  CodePointSet folded(char32_t code) {
    const CodePointSet cases = both_cases(code, reader_);
    const char32_t lower = code >= 'A' && code <= 'Z' ? code + 0x20 : code;
    const bool f = last_folded_ == 'f' && (lower == 'f' || lower == 'i' || lower == 'l');
    const bool s = last_folded_ == 's' && (lower == 's' || lower == 't');
    if (f || s) reader_.refuse("ignores the case of ff, fi, fl, ss or st, which is not supported");
    last_folded_ = lower;
    return cases;
  }

  bool group(bool ignore_case, int depth) {
    last_folded_ = 0;
    std::string_view found;
    for (const std::string_view opening : {"?:", "?>", "?=", "?!", "?<=", "?<!", "?i:", "?-i:"})
      if (found.empty() && reader_.take(opening)) found = opening;
    if (found.empty() && reader_.sees("?"))
      reader_.refuse("has a group of a kind that is not supported; there are ( (?: (?i: (?> (?= (?! (?<= (?<!");
    const bool sets_case = found.ends_with("i:"), plain = found.empty() || found == "?:" || sets_case;
    if (sets_case) ignore_case = found == "?i:";
    syntax(plain ? "(?:" : "(" + std::string(found));
    const bool looks = !plain && found != "?>";
    const bool empty = alternatives(ignore_case, depth + 1);
    if (!reader_.take(")")) reader_.refuse("has ( without )");
    syntax(")");
    return looks || empty;
  }

  /// Reads a quantifier without its lazy or possessive suffix.
  std::optional<std::string> quantifier() {
    for (const char* const sign : {"*", "+", "?"})
      if (reader_.take(sign)) return sign;
    if (!reader_.take("{")) return std::nullopt;
    const std::optional<int> least = number();
    std::string text = "{" + std::to_string(least.value_or(0));
    std::optional<int> most = least;
    const bool ranges = reader_.take(",");
    if (ranges) {
      most = number();
      text += "," + (most ? std::to_string(*most) : "");
    }
    if ((!ranges && !least) || !reader_.take("}") || (!least && !most) || (most && *most < least.value_or(0)) ||
        most == 0)
      reader_.refuse("has { that begins no {n}, {n,}, {,n} or {n,m}; write \\{ for the character");
    return text + "}";
  }

  std::optional<int> number() {
    std::optional<int> value;
    while (!reader_.at_end() && reader_.peek() >= '0' && reader_.peek() <= '9') {
      value = value.value_or(0) * 10 + static_cast<int>(reader_.next() - '0');
      if (*value > most_repeats) reader_.refuse("repeats more than 1000 times");
    }
    return value;
  }

  void syntax(std::string text) { parts_.push_back({.syntax = std::move(text), .set = {}}); }
  void set(CodePointSet members) { parts_.push_back({.syntax = {}, .set = std::move(members)}); }

  PatternReader reader_;
  std::vector<PatternPart> parts_;
  char32_t last_folded_ = 0;  // the previous literal, if case is ignored
};

}  // namespace

std::vector<PatternPart> read_pattern(std::string_view pattern, const std::string& source) {
  require<InputError>(pattern.size() <= 10000, source, ": a regular expression of ", pattern.size(),
                      " bytes; at most 10000 are read");
  return PatternParser(pattern, source).read();
}

}  // namespace fsdp::text
