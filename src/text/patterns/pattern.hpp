// SPDX-License-Identifier: Apache-2.0
/// @file
/// Parses the regular expressions of tokenizer.json, in the syntax of Oniguruma, into sets of code points and the
/// syntax that joins them.
///
/// Supports literals, sets with ranges, nested sets and &&, \s \w \d \p{..} and their complements, groups, (?i:..),
/// (?>..), lookahead and lookbehind, and all quantifiers. Any other syntax is an error that identifies it, so that
/// every pattern means the same as in the Python package `tokenizers`. To add syntax, extend pattern.cpp.
#pragma once

#include <string>
#include <string_view>
#include <vector>

#include "../unicode/unicode_sets.hpp"

namespace fsdp::text {

/// A piece of a pattern: syntax that PCRE2 and Oniguruma share, or a set that matches one code point.
struct PatternPart {
  std::string syntax;  ///< empty for a set
  CodePointSet set;
};

/// Parses a pattern. The caller writes each set in its own alphabet. Throws InputError "`source`: ...".
std::vector<PatternPart> read_pattern(std::string_view pattern, const std::string& source);

}  // namespace fsdp::text
