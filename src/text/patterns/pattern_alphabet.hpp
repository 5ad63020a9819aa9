// SPDX-License-Identifier: Apache-2.0
/// @file
/// The alphabet of a regular expression: ASCII, and symbols for other characters, each of which fits a byte.
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <string>
#include <vector>

#include "../unicode/code_point_set.hpp"
#include "pattern.hpp"

namespace fsdp::text {

inline constexpr std::size_t symbols_beyond_ascii = 128;

/// Maps the characters of a pattern to bytes: ASCII to itself, and other characters to symbols from 128 on. Characters
/// that are in the same sets have the same symbol. Takes time proportional to the number of ranges in the pattern's
/// sets.
class PatternAlphabet {
 public:
  PatternAlphabet(const std::vector<PatternPart>& parts, const std::string& source);

  std::string text_of(const CodePointSet& set) const;  ///< a set in the syntax of PCRE2
  CodePointTable table() const;                        ///< the symbol of each character, minus 128

 private:
  using Members = std::array<std::size_t, symbols_beyond_ascii>;

  template <class Visit>
  void each(const std::vector<CodePointRange>& ranges, const Visit& visit) const;
  std::size_t split(const std::vector<CodePointRange>& set, Members& members, std::size_t count,
                    const std::string& source);

  std::vector<char32_t> borders_;      // code points at which the membership in some set changes
  std::vector<std::uint8_t> symbols_;  // for each interval between two borders: its symbol, minus 128
};

}  // namespace fsdp::text
