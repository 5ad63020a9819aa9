// SPDX-License-Identifier: Apache-2.0
/// @file
/// Parses the regular expressions of tokenizer.json, in the syntax of Oniguruma, into sets of code points and the
/// syntax that joins them.
///
/// Supports literals, sets with ranges, nested sets and &&, \s \w \d \p{..} and their complements, groups, (?i:..),
/// (?>..), lookahead and lookbehind, and all quantifiers. Any other syntax is an error that identifies it, so that
/// every pattern means the same as in the Python package `tokenizers`. To add syntax, extend pattern.cpp, or
/// pattern_set.cpp for sets.
#pragma once

#include <string>
#include <string_view>
#include <vector>

#include "../unicode/code_point_set.hpp"

namespace fsdp::text {

/// A piece of a pattern: syntax that PCRE2 and Oniguruma share, or a set that matches one code point.
struct PatternPart {
  std::string syntax;  ///< empty for a set
  CodePointSet set;
};

/// Parses a pattern. The caller writes each set in its own alphabet. Throws InputError "`source`: ...".
std::vector<PatternPart> read_pattern(std::string_view pattern, const std::string& source);

/// Reads a pattern character by character.
class PatternReader {
 public:
  PatternReader(std::string_view pattern, const std::string& source) : pattern_(pattern), source_(source) {}

  bool at_end() const { return at_ == pattern_.size(); }
  bool sees(std::string_view text) const { return pattern_.substr(at_).starts_with(text); }
  bool take(std::string_view text);  ///< if `text` is next, consumes it and returns true
  char peek() const { return pattern_[at_]; }
  char32_t next();  ///< consumes one code point

  /// Throws InputError with the pattern, the position and the problem.
  [[noreturn]] void refuse(std::string_view what) const;

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
/// Reads an escape after its '\'.
Escape read_escape(PatternReader& reader);

/// Reads a set after its '['. `depth`: the number of enclosing sets.
CodePointSet read_set(PatternReader& reader, bool ignore_case, int depth = 0);

/// Returns the set of one code point.
CodePointSet single(char32_t code);

/// Returns a literal and its other case. Supports only ASCII; other characters would need full case folding.
CodePointSet both_cases(char32_t code, const PatternReader& reader);

}  // namespace fsdp::text
