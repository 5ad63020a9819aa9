// SPDX-License-Identifier: Apache-2.0
#include "pattern.hpp"

#include <optional>
#include <utility>

#include <tessera/fsdp/core/error.hpp>
#include <tessera/fsdp/core/terminal_text.hpp>

namespace fsdp::text {
namespace {

constexpr int most_depth = 50;
constexpr int most_repeats = 1000;

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
    if (reader_.take(",")) {
      most = number();
      text += "," + (most ? std::to_string(*most) : "");
    } else if (!least) {
      reader_.refuse("has { that begins no {n}, {n,}, {,n} or {n,m}; write \\{ for the character");
    }
    if (!reader_.take("}") || (!least && !most) || (most && *most < least.value_or(0)) || most == 0)
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

bool PatternReader::take(std::string_view text) {
  if (!sees(text)) return false;
  at_ += text.size();
  return true;
}

char32_t PatternReader::next() { return next_code_point(pattern_, at_); }

void PatternReader::refuse(std::string_view what) const {
  throw InputError(
      message(source_, ": the regular expression \"", shortened(pattern_), "\" ", what, " (byte ", at_, ")"));
}

std::vector<PatternPart> read_pattern(std::string_view pattern, const std::string& source) {
  require<InputError>(pattern.size() <= 10000, source, ": a regular expression of ", pattern.size(),
                      " bytes; at most 10000 are read");
  return PatternParser(pattern, source).read();
}

}  // namespace fsdp::text
