// SPDX-License-Identifier: Apache-2.0
/// @file
/// Normalizers, "normalizer" of tokenizer.json: change a text before it is split into words.
///
/// To add one, add a struct here, and its case and its name to normalizer.cpp.
#pragma once

#include <optional>
#include <string>
#include <string_view>
#include <variant>
#include <vector>

#include "../budget.hpp"
#include "../patterns/regular_expression.hpp"
#include "../unicode/unicode_normalization.hpp"
#include "steps.hpp"

namespace fsdp::text {

/// Prepends `content` to a text that is not empty.
struct Prepend {
  std::string content;
};

/// Replaces each match of a pattern, or each occurrence of a literal.
struct Replace {
  std::optional<RegularExpression> pattern;  ///< empty: `literal` is replaced
  std::string literal;
  std::string content;

  /// Appends the changed text, and spends a step for each of its bytes. Returns whether anything was replaced.
  bool append(std::string& out, std::string_view text, Budget& budget) const;
  /// Returns how many bytes at the beginning of the text are replaced by the first match; 0 if it begins later.
  std::size_t first_at_begin(std::string_view text, Budget& budget) const;
};

/// A part of the text that is being encoded.
struct Part {
  std::string_view text;
  bool at_begin = false;  ///< it begins with the first character of the whole text
  bool follows = false;   ///< the text continues another one: nothing is prepended
};

/// A sequence of normalizing steps.
struct Normalizer {
  using Step = std::variant<UnicodeForm, Prepend, Replace>;
  std::vector<Step> steps;

  /// Applies all steps. The result refers to the part's text if it is unchanged, else to `buffer`. Spends a step for
  /// each byte that a step writes: steps may double a text repeatedly.
  Part apply(Part part, std::string& buffer, Budget& budget) const;
};

Replace read_replace(const Keys& step);
Normalizer read_normalizer(const Keys& stage);

}  // namespace fsdp::text
