// SPDX-License-Identifier: Apache-2.0
/// @file
/// What a Tokenizer shares among its copies and threads.
#pragma once

#include <memory>
#include <mutex>
#include <string>
#include <string_view>
#include <unordered_map>
#include <utility>
#include <vector>

#include <fsdp/text/tokenizer.hpp>

#include "added_tokens.hpp"
#include "bpe.hpp"
#include "decoder.hpp"
#include "normalizer.hpp"
#include "post_processor.hpp"
#include "pre_tokenizer.hpp"
#include "word_cache.hpp"

namespace fsdp::text {

/// What encoding needs beside the tokenizer. One thread uses it at a time.
struct Scratch {
  std::string valid;  ///< the text, where it was not UTF-8
  std::string normalized;
  std::vector<TextPart> parts, inner_parts;
  Words words;
  BpeScratch bpe;
  WordCache cache;
};

/// Scratches that nobody uses now: as many as threads encoded at once. A thread goes on with the words of another.
class ScratchPool {
 public:
  std::unique_ptr<Scratch> take() const;
  void give_back(std::unique_ptr<Scratch> scratch) const;

 private:
  mutable std::mutex mutex_;
  mutable std::vector<std::unique_ptr<Scratch>> idle_;
};

/// A token as decoding sees it.
struct DecodedToken {
  TokenId id = 0;
  std::string_view name;
  bool special = false;
};

struct Tokenizer::State {
  State(Normalizer normalizer, PreTokenizer pre_tokenizer, Bpe bpe, PostProcessor post_processor, Decoder decoder,
        std::vector<AddedToken> added_tokens, const std::string& source);
  State(const State&) = delete;  // parts refer to each other
  State& operator=(const State&) = delete;

  /// `follows`: the text goes on where another was cut.
  void append(std::string_view text, Scratch& scratch, std::vector<TokenId>& ids, bool follows = false) const;
  void append_part(const Part& part, Scratch& scratch, std::vector<TokenId>& ids) const;
  void append_word(std::string_view word, Scratch& scratch, std::vector<TokenId>& ids) const;

  const DecodedToken* find(TokenId id) const;  ///< nullptr where there is none

  Normalizer normalizer;
  PreTokenizer pre_tokenizer;
  Bpe model;
  PostProcessor post_processor;
  Decoder decoder;
  std::vector<AddedToken> added;
  AddedTokenFinder in_text, in_normalized;
  std::vector<DecodedToken> tokens;                         ///< by id
  std::unordered_map<std::string_view, TokenId> added_ids;  ///< by content
  std::int64_t vocabulary_size = 0;
  ScratchPool pool;

 private:
  void add_tokens(const std::string& source);
};

}  // namespace fsdp::text
