// SPDX-License-Identifier: Apache-2.0
/// @file
/// A regular expression of tokenizer.json, compiled by PCRE2 with its JIT. No other file knows PCRE2.
///
/// PCRE2 sees no UTF-8: an ASCII character stands for itself, and any other for one of 128 symbols, by which sets of
/// the pattern it is in. So \p{..} means what unicode_sets.hpp says, and a text of ASCII is matched as it is.
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <string>
#include <string_view>
#include <vector>

#include "code_point_set.hpp"

namespace fsdp::text {

/// Bytes [begin, end) of a text that the pattern matched.
struct Match {
  std::size_t begin = 0;
  std::size_t end = 0;
};

class RegularExpression {
 public:
  /// Throws InputError "`source`: ..." where the pattern is refused.
  RegularExpression(std::string_view pattern, const std::string& source);
  /// The pattern that matches one text alone.
  static RegularExpression of_literal(std::string_view text, const std::string& source);

  ~RegularExpression();
  RegularExpression(RegularExpression&&) noexcept;
  RegularExpression& operator=(RegularExpression&&) noexcept;

  /// Appends all matches of a text in UTF-8, from the left, none overlapping; none is empty right behind the last one.
  /// Throws InputError where matching goes back and forth without end. Any number of threads may call this.
  void find_all(std::string_view text, std::vector<Match>& matches) const;

 private:
  struct Compiled;
  explicit RegularExpression(std::unique_ptr<const Compiled> compiled);
  std::unique_ptr<const Compiled> compiled_;
};

}  // namespace fsdp::text
