// SPDX-License-Identifier: Apache-2.0
/// @file
/// The data that copies of a Tokenizer share, and the workspaces of its threads.
#pragma once

#include <memory>
#include <mutex>
#include <string>
#include <string_view>
#include <unordered_map>
#include <vector>

#include <tessera/text/tokenizer.hpp>

#include "added_tokens.hpp"
#include "bpe/bpe.hpp"
#include "bpe/word_cache.hpp"
#include "budget.hpp"
#include "stages/decoder.hpp"
#include "stages/normalizer.hpp"
#include "stages/post_processor.hpp"
#include "stages/pre_tokenizer.hpp"

namespace fsdp::text {

/// Workspace for encoding; for one thread at a time.
struct Scratch {
  std::string valid;  ///< the text with invalid UTF-8 replaced
  std::string normalized;
  std::vector<TextPart> parts, inner_parts;
  Words words;
  BpeScratch bpe;
  WordCache cache;
};

/// A pool of idle workspaces. Their number is the largest number of threads that encoded concurrently. A thread reuses
/// the words that another thread cached.
class ScratchPool {
 public:
  std::unique_ptr<Scratch> take() const;
  void give_back(std::unique_ptr<Scratch> scratch) const;

 private:
  mutable std::mutex mutex_;
  mutable std::vector<std::unique_ptr<Scratch>> idle_;
};

/// A token for decoding.
struct DecodedToken {
  TokenId id = 0;
  std::string_view name;
  bool special = false;
};

/// The parts of a tokenizer.
struct Tokenizer::State {
  explicit State(const Keys& file);
  State(const State&) = delete;  // parts refer to each other
  State& operator=(const State&) = delete;

  /// Encodes a text and appends its ids. `follows`: the text continues another one.
  void append(std::string_view text, std::vector<TokenId>& ids, bool follows = false) const;
  void append_part(const Part& part, Scratch& scratch, std::vector<TokenId>& ids, Budget& budget) const;
  void append_word(std::string_view word, Scratch& scratch, std::vector<TokenId>& ids) const;

  const DecodedToken* find(TokenId id) const;  ///< nullptr if there is none

  /// Return the budget for encoding a text, or for decoding tokens whose names have `bytes` bytes in total.
  Budget encoding(std::size_t bytes) const { return {encoding_, bytes, rate}; }
  Budget decoding(std::size_t bytes) const { return {decoding_, bytes, rate}; }

  Normalizer normalizer;
  PreTokenizer pre_tokenizer;
  PostProcessor post_processor;
  Decoder decoder;
  Bpe model;
  std::vector<AddedToken> added;
  AddedTokenFinder in_text, in_normalized;
  std::vector<DecodedToken> tokens;                         ///< by id
  std::unordered_map<std::string_view, TokenId> added_ids;  ///< by content
  std::int64_t vocabulary_size = 0;
  ScratchPool pool;

 private:
  void add_tokens(const std::string& source);

  // Ordinary tokenizers take 1 to 10 steps for each byte.
  static constexpr Budget::Rate rate = {.base = 1'000'000, .per_byte = 100};
  Budget::Task encoding_, decoding_;
};

}  // namespace fsdp::text
