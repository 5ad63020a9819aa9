// SPDX-License-Identifier: Apache-2.0
/// @file
/// A set of code points as sorted ranges, and a table with a byte for each code point.
#pragma once

#include <compare>
#include <cstdint>
#include <functional>
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

}  // namespace fsdp::text
