// SPDX-License-Identifier: Apache-2.0
/// @file
/// Sets of code points: sorted ranges, tables by code point, and the sets that Unicode defines, as in the Python
/// package `tokenizers` (see tests/text/make_unicode_ranges.py).
#pragma once

#include <array>
#include <compare>
#include <cstddef>
#include <cstdint>
#include <functional>
#include <optional>
#include <string_view>
#include <vector>

#include "code_points.hpp"

namespace fsdp::text {

/// Code points [begin, end).
struct CodePointRange {
  char32_t begin = 0;
  char32_t end = 0;
  friend auto operator<=>(const CodePointRange&, const CodePointRange&) = default;
};

/// A set of code points: sorted ranges that are not empty and not adjacent.
class CodePointSet {
 public:
  CodePointSet() = default;
  explicit CodePointSet(std::vector<CodePointRange> ranges);  ///< in any order; may overlap

  const std::vector<CodePointRange>& ranges() const { return ranges_; }
  bool contains(char32_t code) const;

  CodePointSet operator|(const CodePointSet& other) const;
  CodePointSet operator&(const CodePointSet& other) const { return ~(~*this | ~other); }
  CodePointSet operator^(const CodePointSet& other) const { return (*this | other) & ~(*this & other); }
  CodePointSet operator~() const;
  friend bool operator==(const CodePointSet&, const CodePointSet&) = default;

 private:
  std::vector<CodePointRange> ranges_;
};

/// A table with a byte for each code point. Equal pages of 256 code points are stored once.
class CodePointTable {
 public:
  /// `fill(bytes)` gets a vector of zeros, one for each code point, and writes the other values.
  explicit CodePointTable(const std::function<void(std::vector<std::uint8_t>&)>& fill);

  std::uint8_t operator[](char32_t code) const { return bytes_[pages_[code >> 8] + (code & 0xFF)]; }

 private:
  std::vector<std::uint32_t> pages_;  // each page's first index in bytes_
  std::vector<std::uint8_t> bytes_;
};

/// Returns a set of unicode_tables by its name: "space", "word", "numeric", ... Throws LogicError for an unknown name.
const CodePointSet& unicode_set(std::string_view name);

/// Returns the set of a property: a general category ("Lu"), a group of them ("L"), their long names ("Letter"), or a
/// script (Han, Hiragana, Katakana, Hangul). Ignores case, '_', '-' and ' '. Returns nothing for an unknown name.
std::optional<CodePointSet> property_set(std::string_view name);

/// Run lengths of categories for all code points, from 0 on: "Lu3Ll" is three code points of category Lu, then one of
/// Ll.
extern const char* const category_runs;

/// A set of code points, as its difference from general categories.
struct UnicodeTable {
  const char* name;
  const char* categories;  ///< such as "L Nd"
  const char* runs;        ///< run lengths from code point 0 on, alternately without and with a difference
};

inline constexpr std::size_t unicode_table_count = 10;
extern const std::array<UnicodeTable, unicode_table_count> unicode_tables;

}  // namespace fsdp::text
