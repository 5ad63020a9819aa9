// SPDX-License-Identifier: Apache-2.0
/// @file
/// How a normalized text is split into words: "pre_tokenizer" of tokenizer.json.
///
/// To add one: a struct here, its case in pre_tokenizer.cpp, its name in pre_tokenizer_json.cpp.
#pragma once

#include <cstddef>
#include <string>
#include <string_view>
#include <utility>
#include <variant>
#include <vector>

#include "normalizer.hpp"
#include "regular_expression.hpp"

namespace fsdp::text {

/// What becomes of what a pattern matches.
enum class Delimiter { removed, isolated, merged_with_previous, merged_with_next, contiguous };

struct Split {
  RegularExpression pattern;
  Delimiter behavior = Delimiter::isolated;
  bool invert = false;  ///< what is between matches is taken for them
};

/// Each number alone, or runs of them.
struct Digits {
  bool individual = false;
};

/// Spaces become `replacement`, before which the text is split.
struct Metaspace {
  enum class Prepend { always, first, never };
  std::string replacement;
  Prepend prepend = Prepend::always;
  bool split = true;
};

/// Words are bytes from here on, so it comes last. Here: the space before, and the expression of GPT-2.
struct ByteLevel {
  bool add_prefix_space = false;
  std::vector<RegularExpression> pattern;  ///< one or none
};

/// Words [begin, end) of a text, none empty.
struct Words {
  std::string_view text;
  std::vector<Match> spans;
  bool at_begin = false;  ///< as of the part that was split
  bool follows = false;   ///< as Part

  std::string buffer;  ///< where the text was changed
  std::string other_buffer;
  std::vector<Match> other_spans;
  std::vector<Match> matches;
};

class PreTokenizer {
 public:
  using Step = std::variant<Split, Digits, Metaspace, ByteLevel>;

  PreTokenizer() = default;
  explicit PreTokenizer(std::vector<Step> steps) : steps_(std::move(steps)) {}

  const std::vector<Step>& steps() const { return steps_; }
  bool byte_level() const { return !steps_.empty() && std::holds_alternative<ByteLevel>(steps_.back()); }

  /// Fills `words`, which may refer to the part.
  void split(const Part& part, Words& words) const;

 private:
  std::vector<Step> steps_;
};

}  // namespace fsdp::text
