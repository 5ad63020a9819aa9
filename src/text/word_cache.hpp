// SPDX-License-Identifier: Apache-2.0
/// @file
/// The ids of words seen before. One thread uses a cache at a time.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include <fsdp/text/tokenizer.hpp>

namespace fsdp::text {

class WordCache {
 public:
  static constexpr std::size_t longest_word = 256;  ///< bytes; longer words are not kept

  /// Appends the ids of a word of 1 to `longest_word` bytes; whether it was there.
  bool append(std::string_view word, std::vector<TokenId>& ids);

  /// Keeps the ids of the word that `append` did not find last, which must be the same.
  void keep(std::string_view word, std::span<const TokenId> ids);

 private:
  struct Slot {
    std::uint32_t hash = 0;
    std::uint16_t length = 0;  // 0: free
    std::uint16_t count = 0;
    std::uint32_t word = 0;  // where its bytes begin
    std::uint32_t ids = 0;   // where its ids begin; the id itself where there is one
  };

  void grow();

  std::vector<Slot> slots_ = std::vector<Slot>(4096);
  std::size_t used_ = 0;
  std::size_t place_ = 0;  // of the word that was looked for last
  std::uint32_t hash_ = 0;
  std::string words_;
  std::vector<TokenId> ids_;
};

}  // namespace fsdp::text
