// SPDX-License-Identifier: Apache-2.0
/// @file
/// The stages of tokenizer.json around the model: normalizers change a text, pre-tokenizers split it into words,
/// post-processors put special tokens around its ids, and decoders convert tokens to text.
///
/// To add a step, add a struct here (decoders need none), and its case and its name to the stage's source.
#pragma once

#include <cstdint>
#include <functional>
#include <optional>
#include <string>
#include <string_view>
#include <variant>
#include <vector>

#include <tessera/text/tokenizer.hpp>

#include "../../fsdp/core/json/strict_json.hpp"
#include "../budget.hpp"
#include "../patterns/regular_expression.hpp"
#include "../unicode/code_points.hpp"

namespace fsdp::text {

inline constexpr std::int64_t largest_id = 0x7FFFFFFF;

/// Returns the entries at `key` of a Sequence, with nested Sequences flattened; the stage itself if it is not a
/// Sequence.
std::vector<Keys> steps_of(const Keys& stage, const char* key);

/// Returns the text at `key`, which must be exactly one character.
std::string character_at(const Keys& keys, const char* key);

/// {"String": ..} if `literal`, else {"Regex": ..}.
struct PatternText {
  bool literal = false;
  std::string text;
};
/// Reads the "pattern" of a step.
PatternText read_pattern_text(const Keys& step);

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

/// A part of a template: the text's ids, or special tokens. (ByteLevel only changes offsets and needs no template.)
struct TemplatePiece {
  bool text = false;
  std::vector<TokenId> ids;  ///< the special tokens, if this is not the text
};

/// Templates, each applied to the result of the previous one.
using PostProcessor = std::vector<std::vector<TemplatePiece>>;

PostProcessor read_post_processor(const Keys& stage);

/// Applies a post-processor to the ids from `begin` on.
void apply(const PostProcessor& processor, bool special, std::size_t begin, std::vector<TokenId>& ids);

/// A sequence of decoding steps.
struct Decoder {
  /// Converts tokens, given by their names, to other tokens.
  using Step = std::function<std::vector<std::string>(std::vector<std::string> tokens, Budget& budget)>;
  std::vector<Step> steps;
  bool byte_level = false;     ///< the decoder of byte-level files: a token's bytes do not depend on its neighbours
  bool spaces_between = true;  ///< without a decoder in the file, tokens are joined by spaces

  /// Returns the text of tokens, given by their names.
  std::string decode(std::vector<std::string> tokens, Budget& budget) const;
};

Decoder read_decoder(const Keys& stage);

}  // namespace fsdp::text
