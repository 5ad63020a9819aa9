// SPDX-License-Identifier: Apache-2.0
/// @file
/// A cache of words and their ids, for one thread at a time.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include <tessera/text/tokenizer.hpp>

namespace fsdp::text {

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
