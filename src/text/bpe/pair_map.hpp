// SPDX-License-Identifier: Apache-2.0
/// @file
/// A hash table of merges by pairs of tokens: one array with open addressing.
#pragma once

#include <bit>
#include <cstddef>
#include <cstdint>
#include <vector>

#include <tessera/text/tokenizer.hpp>

#include "token_map.hpp"

namespace fsdp::text {

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

}  // namespace fsdp::text
