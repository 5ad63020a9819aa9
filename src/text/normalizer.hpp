// SPDX-License-Identifier: Apache-2.0
/// @file
/// What happens to a text before it is split: "normalizer" of tokenizer.json.
///
/// To add one: a struct here, its case in normalizer.cpp, its name in normalizer_json.cpp.
#pragma once

#include <optional>
#include <string>
#include <string_view>
#include <variant>
#include <vector>

#include "regular_expression.hpp"
#include "unicode_normalization.hpp"

namespace fsdp::text {

/// Puts a text before one that is not empty.
struct Prepend {
  std::string content;
};

/// Replaces each match of a pattern, or each place of a literal.
struct Replace {
  std::optional<RegularExpression> pattern;  ///< none: the literal
  std::string literal;
  std::string content;

  /// Appends what `text` becomes; whether anything was found.
  bool append(std::string& out, std::string_view text) const;
  /// The bytes at the begin of the text that are replaced, 0 where another part of it comes first.
  std::size_t first_at_begin(std::string_view text) const;
};

/// A text within a larger one that is encoded.
struct Part {
  std::string_view text;
  bool at_begin = false;  ///< its first character is the first of what is encoded
  bool follows = false;   ///< it goes on where another was cut: nothing is put before it
};

class Normalizer {
 public:
  using Step = std::variant<UnicodeForm, Prepend, Replace>;

  Normalizer() = default;
  explicit Normalizer(std::vector<Step> steps) : steps_(std::move(steps)) {}

  const std::vector<Step>& steps() const { return steps_; }

  /// The text, or what `buffer` then holds.
  Part apply(Part part, std::string& buffer) const;

 private:
  std::vector<Step> steps_;
};

}  // namespace fsdp::text
