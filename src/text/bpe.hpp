// SPDX-License-Identifier: Apache-2.0
/// @file
/// The model of tokenizer.json, "BPE": a word becomes its characters' tokens, of which neighbours are merged, the pair
/// of the lowest rank first.
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include <fsdp/text/tokenizer.hpp>

#include "pair_map.hpp"
#include "token_map.hpp"

namespace fsdp::text {

/// What a file says of its model.
struct BpeFile {
  struct Token {
    std::string_view name;
    TokenId id = 0;
  };
  struct Pair {
    std::string_view left, right;
  };
  std::vector<Token> vocabulary;  ///< by id; its names and those of merges are the file's
  std::vector<Pair> merges;       ///< by rank
  std::optional<std::string> unknown;
  bool byte_fallback = false;  ///< a character without a token becomes tokens <0x..> of its bytes
  bool fuse_unknown = false;   ///< unknown characters in a row become one token
  bool ignore_merges = false;  ///< a word that is a token stays whole
};

/// Room for one word's work. One thread uses it at a time.
struct BpeScratch {
  std::vector<TokenId> ids;
  std::vector<Merge> merges;
  std::vector<std::uint32_t> previous, next;
  struct Candidate {
    std::uint32_t rank, place;
    TokenId id;
  };
  std::vector<Candidate> queue;
};

class Bpe {
 public:
  /// `byte_level`: words are bytes, each a character of the file's alphabet. Throws InputError "`source`: ...".
  Bpe(BpeFile file, bool byte_level, const std::string& source);

  /// Appends the ids of a word, which is not empty: UTF-8, or any bytes where the model is byte-level.
  void append(std::string_view word, BpeScratch& scratch, std::vector<TokenId>& ids) const;

  /// Whether words may be cut before a U+2581 that follows another character, and become the same ids.
  bool cuts_at_spaces() const { return cuts_at_spaces_; }

  const TokenMap& vocabulary() const { return vocabulary_; }  ///< by id

 private:
  void read_merges(const BpeFile& file, const std::string& source);
  void add_character(std::string_view character, bool& pending, std::vector<TokenId>& ids) const;
  TokenId unknown() const;
  void merge_short(std::vector<TokenId>& ids, std::vector<Merge>& merges) const;
  void merge_long(BpeScratch& scratch) const;

  TokenMap vocabulary_;
  TokenMap whole_words_;  // by their bytes, where ignore_merges
  PairMap merges_;
  std::array<std::optional<TokenId>, 256> of_byte_;   // tokens of one character: of a byte, or of ASCII
  std::array<std::optional<TokenId>, 256> fallback_;  // <0x..>
  std::optional<std::string> unknown_name_;
  std::optional<TokenId> unknown_;
  std::string source_;
  bool byte_level_ = false;
  bool byte_fallback_ = false;
  bool fuse_unknown_ = false;
  bool ignore_merges_ = false;
  bool cuts_at_spaces_ = false;
};

}  // namespace fsdp::text
