// SPDX-License-Identifier: Apache-2.0
/// @file
/// Tokens beside the model's: found in a text before it is split into words.
#pragma once

#include <array>
#include <cstdint>
#include <map>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include <fsdp/text/tokenizer.hpp>

namespace fsdp::text {

/// An entry of "added_tokens" of tokenizer.json.
struct AddedToken {
  TokenId id = 0;
  std::string content;
  std::string pattern;  ///< what is looked for, and what decoding gives: the content, normalized where `normalized`
  bool single_word = false;  ///< not within a word
  bool lstrip = false;       ///< takes white space before it
  bool rstrip = false;       ///< takes white space behind it
  bool normalized = false;   ///< found in the normalized text, instead of in the text as it is
  bool special = false;      ///< left out by decoding
};

/// A part of a text: one added token with what it stripped, or text between them.
struct TextPart {
  std::size_t begin = 0;
  std::size_t end = 0;
  const AddedToken* token = nullptr;
};

/// Finds the longest of the leftmost tokens, again and again.
class AddedTokenFinder {
 public:
  /// The token outlives the finder. Of two with one pattern the later counts.
  void add(const AddedToken* token);
  bool empty() const { return nodes_.size() == 1; }

  /// All parts of a text in UTF-8, in order, none empty.
  void split(std::string_view text, std::vector<TextPart>& parts) const;

 private:
  struct Node {
    std::vector<std::pair<unsigned char, std::uint32_t>> next;
    const AddedToken* token = nullptr;
  };
  /// The longest token that begins at `at`.
  const AddedToken* longest(std::string_view text, std::size_t at) const;

  std::vector<Node> nodes_{1};
  std::array<std::uint32_t, 256> first_{};  // node behind a first byte, 0 where no token begins so
};

}  // namespace fsdp::text
