// SPDX-License-Identifier: Apache-2.0
/// @file
/// A regular expression as tokenizer.json holds it, in the syntax of Oniguruma, read into sets of code points and what
/// joins them.
///
/// Read are literals, sets with ranges, nested sets and &&, \s \w \d \p{..} and their complements, groups, (?i:..),
/// (?>..), lookahead and lookbehind, and all quantifiers. Anything else is refused by name: no pattern may mean
/// something else than it does in the Python package `tokenizers`. To add syntax: pattern.cpp, or pattern_set.cpp
/// inside of [].
#pragma once

#include <string>
#include <string_view>
#include <vector>

#include "code_point_set.hpp"

namespace fsdp::text {

/// Syntax that PCRE2 and Oniguruma share, or one code point out of a set.
struct PatternPart {
  std::string syntax;  ///< empty for a set
  CodePointSet set;
};

/// The pattern in pieces: a consumer writes each set as its alphabet has it. Throws InputError "`source`: ...".
std::vector<PatternPart> read_pattern(std::string_view pattern, const std::string& source);

/// Where a reader stands in a pattern, and how it complains.
class PatternReader {
 public:
  PatternReader(std::string_view pattern, const std::string& source) : pattern_(pattern), source_(source) {}

  bool at_end() const { return at_ == pattern_.size(); }
  bool sees(std::string_view text) const { return pattern_.substr(at_).starts_with(text); }
  bool take(std::string_view text);  ///< moves behind it where it is next
  char peek() const { return pattern_[at_]; }
  char32_t next();  ///< one code point
  std::size_t place() const { return at_; }

  /// Throws InputError: the pattern, the place, what is wrong.
  [[noreturn]] void refuse(std::string_view what) const;

 private:
  std::string_view pattern_;
  const std::string& source_;
  std::size_t at_ = 0;
};

/// An escape behind its '\': a set (\s, \p{L}) or a single code point (\n, \., \x41).
struct Escape {
  CodePointSet set;
  bool single = false;
  char32_t code = 0;  ///< where single
};
Escape read_escape(PatternReader& reader);

/// A set behind its '[', within so many others.
CodePointSet read_set(PatternReader& reader, bool ignore_case, int depth = 0);

CodePointSet single(char32_t code);

/// A literal and what differs from it in case alone. Only ASCII: longer foldings would be needed beyond.
CodePointSet both_cases(char32_t code, const PatternReader& reader);

}  // namespace fsdp::text
