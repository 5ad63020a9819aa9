// SPDX-License-Identifier: Apache-2.0
/// @file
/// Pre-tokenizers, "pre_tokenizer" of tokenizer.json: split a normalized text into words.
///
/// To add one, add a struct here, and its case and its name to pre_tokenizer.cpp.
#pragma once

#include <string>
#include <string_view>
#include <variant>
#include <vector>

#include "../patterns/regular_expression.hpp"
#include "normalizer.hpp"

namespace fsdp::text {

/// The treatment of text that a pattern matches.
enum class Delimiter { removed, isolated, merged_with_previous, merged_with_next, contiguous };

/// Splits at the matches of a pattern.
struct Split {
  RegularExpression pattern;
  Delimiter behavior = Delimiter::isolated;
  bool invert = false;  ///< treats the text between matches as the matches
};

/// Isolates digits: each one, or runs of them.
struct Digits {
  bool individual = false;
};

/// Replaces spaces by `replacement`, and splits before it.
struct Metaspace {
  enum class Prepend { always, first, never };
  std::string replacement;
  Prepend prepend = Prepend::always;
  bool split = true;
};

/// Optionally adds a leading space, then splits by GPT-2's expression. Must come last, since words are bytes
/// afterwards.
struct ByteLevel {
  bool add_prefix_space = false;
  std::vector<RegularExpression> pattern;  ///< GPT-2's expression; empty if the text is not split
};

/// A part of a text with its words [begin, end); none is empty.
struct Words : Part {
  std::vector<Match> spans;

  std::string buffer;  ///< stores the text if it was changed
  std::string other_buffer;
  std::vector<Match> other_spans;
  std::vector<Match> matches;
};

/// A sequence of splitting steps.
struct PreTokenizer {
  using Step = std::variant<Split, Digits, Metaspace, ByteLevel>;
  std::vector<Step> steps;

  bool byte_level() const { return !steps.empty() && std::holds_alternative<ByteLevel>(steps.back()); }

  /// Splits a part into `words`, which may refer to the part's text.
  void split(const Part& part, Words& words, Budget& budget) const;
};

PreTokenizer read_pre_tokenizer(const Keys& stage);

}  // namespace fsdp::text
