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

/// The bytes of a pattern's characters: ASCII, and symbols from 128 on for characters that are in the same sets. Takes
/// time in proportion to the ranges of the pattern's sets.
class PatternAlphabet {
 public:
  PatternAlphabet(const std::vector<PatternPart>& parts, const std::string& source);

  std::string text_of(const CodePointSet& set) const;  ///< a set in the syntax of PCRE2
  CodePointTable table() const;                        ///< by character: its symbol, less 128

 private:
  using Members = std::array<std::size_t, symbols_beyond_ascii>;

  template <class Visit>
  void each(const std::vector<CodePointRange>& ranges, const Visit& visit) const;
  std::size_t split(const std::vector<CodePointRange>& set, Members& members, std::size_t count,
                    const std::string& source);

  std::vector<char32_t> borders_;      // between code points that some set tells apart
  std::vector<std::uint8_t> symbols_;  // by interval between two borders
};

}  // namespace fsdp::text
