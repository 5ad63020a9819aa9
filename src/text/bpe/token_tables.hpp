// SPDX-License-Identifier: Apache-2.0
/// @file
/// Hash tables of tokens with open addressing: ids by name, merges by pair, and a cache of the ids of words.
#pragma once

#include <bit>
#include <cstddef>
#include <cstdint>
#include <cstring>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include <tessera/text/tokenizer.hpp>

namespace fsdp::text {

extern const std::uint64_t hash_secret;  ///< random, different in each process

/// Maps names of tokens to ids.
class TokenMap {
 public:
  /// Reserves room for `count` names with `bytes` in total.
  explicit TokenMap(std::size_t count = 0, std::size_t bytes = 0);

  void add(std::string_view name, TokenId id);  ///< the name must be new
  std::optional<TokenId> find(std::string_view name) const;

  std::size_t size() const { return names_.size(); }
  std::string_view name(std::size_t place) const;  ///< index in the order of insertion
  TokenId id(std::size_t place) const { return names_[place].id; }

 private:
  struct Name {
    std::uint32_t begin = 0, length = 0;
    TokenId id = 0;
  };
  struct Slot {
    std::uint32_t hash = 0;
    std::uint32_t place = 0;  // index in names_ plus 1; 0: free
  };

  std::string text_;
  std::vector<Name> names_;
  std::vector<Slot> slots_;
};

/// Hashes two numbers with a per-process secret, so that a file cannot contain names, pairs or words chosen to collide.
inline std::uint64_t hash_of(std::uint64_t first, std::uint64_t second) {
  __extension__ using Product = unsigned __int128;
  const Product product = static_cast<Product>(first ^ hash_secret) * (second | 1);
  return static_cast<std::uint64_t>(product) ^ static_cast<std::uint64_t>(product >> 64);
}

/// Loads the eight bytes that begin at `from`.
inline std::uint64_t load8(const char* from) {
  std::uint64_t value = 0;
  std::memcpy(&value, from, 8);
  return value;
}

/// Returns a hash of bytes.
std::uint32_t hash_of(std::string_view bytes);

/// The token that two neighbours are merged to, and the rank of the merge.
struct Merge {
  std::uint32_t rank = none;
  TokenId id = 0;
  static constexpr std::uint32_t none = 0xFFFFFFFF;
};

/// Maps pairs of tokens to merges.
class PairMap {
 public:
  /// Has room for `count` pairs.
  explicit PairMap(std::size_t count = 0) : slots_(std::bit_ceil(2 * count + 2)) {}

  /// A later merge of the same pair replaces the earlier one.
  void set(TokenId left, TokenId right, Merge merge) { slots_[place(key(left, right))] = {key(left, right), merge}; }

  /// Returns the merge of a pair; its rank is `none` if the pair has no merge.
  Merge find(TokenId left, TokenId right) const { return slots_[place(key(left, right))].merge; }

 private:
  struct Slot {
    std::uint64_t key = 0;
    Merge merge;
  };

  static std::uint64_t key(TokenId left, TokenId right) { return std::uint64_t{left} << 32 | right; }

  /// Returns the slot of a pair, or the free slot where it would be inserted.
  std::size_t place(std::uint64_t key) const {
    const std::size_t mask = slots_.size() - 1;
    std::size_t at = static_cast<std::size_t>(hash_of(key, 0x9E3779B97F4A7C15U)) & mask;
    while (slots_[at].merge.rank != Merge::none && slots_[at].key != key) at = (at + 1) & mask;
    return at;
  }

  std::vector<Slot> slots_;
};

/// Maps words to their ids.
class WordCache {
 public:
  static constexpr std::size_t longest_word = 256;  ///< bytes; longer words are not cached

  /// If the cache contains a word (of 1 to `longest_word` bytes), appends its ids and returns true.
  bool append(std::string_view word, std::vector<TokenId>& ids);

  /// Stores the ids of a word. Call it directly after `append` returned false for the same word.
  void keep(std::string_view word, std::span<const TokenId> ids);

 private:
  struct Slot {
    std::uint32_t hash = 0;
    std::uint16_t length = 0;  // 0: free
    std::uint16_t count = 0;
    std::uint32_t word = 0;  // index of its bytes
    std::uint32_t ids = 0;   // index of its ids; if there is only one, the id itself
  };

  void grow();

  std::vector<Slot> slots_ = std::vector<Slot>(4096);
  std::size_t used_ = 0;
  std::size_t place_ = 0;  // slot of the last word that `append` searched
  std::uint32_t hash_ = 0;
  std::string words_;
  std::vector<TokenId> ids_;
};

}  // namespace fsdp::text
