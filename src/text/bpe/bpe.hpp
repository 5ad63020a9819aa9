// SPDX-License-Identifier: Apache-2.0
/// @file
/// The model "BPE" of tokenizer.json: starts with a word's characters and merges neighbouring tokens, the pair with the
/// lowest rank first; and the alphabet of byte-level files, introduced by GPT-2: it writes each byte as a visible
/// character.
#pragma once

#include <array>
#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include <tessera/text/tokenizer.hpp>

#include "../../fsdp/core/json/strict_json.hpp"
#include "token_tables.hpp"

namespace fsdp::text {

/// Appends the bytes of a token that is written in the alphabet. Appends nothing and returns false if it has other
/// characters.
bool append_bytes(std::string& out, std::string_view token);

/// Returns the byte of a token "<0x..>"; nothing for another token.
std::optional<unsigned char> byte_of_fallback(std::string_view token);

/// Returns the offset of the first U+2581, at `from` or later, that follows a different character; npos if there is
/// none. `from` must not be 0.
std::size_t next_space_mark(std::string_view text, std::size_t from);

/// Workspace for encoding one word; for one thread at a time.
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

/// A BPE model.
class Bpe {
 public:
  /// Reads the "model" of a tokenizer.json. `byte_level`: words are bytes, which the vocabulary spells in the alphabet
  /// above. Throws InputError.
  Bpe(const Keys& model, bool byte_level);

  /// Appends the ids of a word, which must not be empty: UTF-8, or any bytes if the model is byte-level.
  void append(std::string_view word, BpeScratch& scratch, std::vector<TokenId>& ids) const;

  /// Returns whether splitting words before each U+2581 that follows a different character leaves the ids unchanged.
  bool cuts_at_spaces() const { return cuts_at_spaces_; }

  const TokenMap& vocabulary() const { return vocabulary_; }  ///< in the order of ids

 private:
  void read_merges(const nlohmann::json& list, const Keys& model);
  void add_character(std::string_view character, bool& pending, std::vector<TokenId>& ids) const;
  TokenId unknown() const;
  void merge_short(std::vector<TokenId>& ids, std::vector<Merge>& merges) const;
  void merge_long(BpeScratch& scratch) const;

  TokenMap vocabulary_;
  TokenMap whole_words_;  // with ignore_merges: tokens by their bytes
  PairMap merges_;
  std::array<std::optional<TokenId>, 256> of_byte_;   // tokens of a single byte or ASCII character
  std::array<std::optional<TokenId>, 256> fallback_;  // tokens <0x..> by byte
  std::optional<std::string> unknown_name_;
  std::optional<TokenId> unknown_;
  std::string source_;
  bool byte_level_ = false;
  bool byte_fallback_ = false;  // a character without a token becomes tokens <0x..> of its bytes
  bool fuse_unknown_ = false;   // consecutive unknown characters become one token
  bool ignore_merges_ = false;  // a word that is itself a token is not split
  bool cuts_at_spaces_ = false;
};

}  // namespace fsdp::text
