// SPDX-License-Identifier: Apache-2.0
/// @file
/// Added tokens, which are not part of the model. They are found in a text before it is split into words.
#pragma once

#include <array>
#include <cstdint>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include <tessera/text/tokenizer.hpp>

#include "../fsdp/core/json/strict_json.hpp"
#include "budget.hpp"

namespace fsdp::text {

/// An entry of "added_tokens" of tokenizer.json.
struct AddedToken {
  TokenId id = 0;
  std::string content;
  std::string pattern;  ///< the text to find, and to write in decoding: the content, normalized if `normalized` is set
  bool single_word = false;  ///< does not match within a word
  bool lstrip = false;       ///< includes white space before it
  bool rstrip = false;       ///< includes white space after it
  bool normalized = false;   ///< is searched for in the normalized text; otherwise in the original text
  bool special = false;      ///< may be skipped by decoding
};

/// Reads the entries of "added_tokens", with the ids in the file.
std::vector<AddedToken> read_added_tokens(const Keys& file);

/// A part of a text: an added token with the white space that it strips, or the text between two added tokens.
struct TextPart {
  std::size_t begin = 0;
  std::size_t end = 0;
  const AddedToken* token = nullptr;
};

/// Splits a text at added tokens: finds the leftmost match, the longest if several begin there, then continues after
/// it.
class AddedTokenFinder {
 public:
  /// Adds a token, which must outlive the finder. A later token with the same pattern replaces an earlier one.
  void add(const AddedToken* token);
  bool empty() const { return nodes_.size() == 1; }

  /// Splits a text in UTF-8 into parts, in order; none is empty. Spends a step for each token byte that it compares.
  void split(std::string_view text, std::vector<TextPart>& parts, Budget& budget) const;

 private:
  struct Node {
    std::vector<std::pair<unsigned char, std::uint32_t>> next;
    const AddedToken* token = nullptr;
  };
  /// Returns the child of a node for the next byte; 0 if there is none.
  std::uint32_t child_of(std::uint32_t node, unsigned char byte) const;
  /// Returns the longest token that begins at `at`, or nullptr.
  const AddedToken* longest(std::string_view text, std::size_t at, Budget& budget) const;

  std::vector<Node> nodes_{1};
  std::array<std::uint32_t, 256> first_{};  // the root's child for each byte; 0 if no token begins with it
};

}  // namespace fsdp::text
