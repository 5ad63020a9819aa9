// SPDX-License-Identifier: Apache-2.0
/// @file
/// Regular expressions of tokenizer.json, compiled by PCRE2 with its JIT. No other file uses PCRE2.
///
/// PCRE2 does not see UTF-8: texts and patterns are translated to bytes. An ASCII character is itself; any other
/// becomes one of 128 symbols, depending on which of the pattern's sets contain it. So \p{..} has the meaning of
/// unicode_sets.hpp, and ASCII text is matched without translation.
#pragma once

#include <cstddef>
#include <memory>
#include <string>
#include <string_view>
#include <vector>

#include "../budget.hpp"
#include "../unicode/unicode_sets.hpp"

namespace fsdp::text {

/// Bytes [begin, end) of a text that the pattern matched.
struct Match {
  std::size_t begin = 0;
  std::size_t end = 0;
};

/// A compiled pattern. Copies share its data.
class RegularExpression {
 public:
  /// Compiles a pattern. Throws InputError "`source`: ..." if it is not supported.
  RegularExpression(std::string_view pattern, const std::string& source);
  /// Returns a pattern that matches exactly one text.
  static RegularExpression of_literal(std::string_view text, const std::string& source);

  /// Returns the source text of the pattern.
  std::string_view text() const;

  /// Appends all matches in a text in UTF-8, from the left, without overlaps; skips an empty match directly after
  /// another match. Spends from `budget` if matching looks far ahead or backtracks far. Several threads can call it
  /// concurrently.
  void find_all(std::string_view text, std::vector<Match>& matches, Budget& budget) const;

 private:
  struct Compiled;
  std::shared_ptr<const Compiled> compiled_;
};

/// A piece of a pattern: syntax that PCRE2 and Oniguruma share, or a set that matches one code point.
struct PatternPart {
  std::string syntax;  ///< empty for a set
  CodePointSet set;
};

/// Parses a pattern in the syntax of Oniguruma into sets of code points and the syntax that joins them. The caller
/// writes each set in its own alphabet. Throws InputError "`source`: ...".
///
/// Supports literals, sets with ranges, nested sets and &&, \s \w \d \p{..} and their complements, groups, (?i:..),
/// (?>..), lookahead and lookbehind, and all quantifiers. Any other syntax is an error that identifies it, so that
/// every pattern means the same as in the Python package `tokenizers`. To add syntax, extend pattern.cpp.
std::vector<PatternPart> read_pattern(std::string_view pattern, const std::string& source);

}  // namespace fsdp::text
