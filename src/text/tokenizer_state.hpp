// SPDX-License-Identifier: Apache-2.0
/// @file
/// The data that copies of a Tokenizer share, among it the added tokens, which are not part of the model; and the
/// workspaces of its threads.
#pragma once

#include <array>
#include <cstdint>
#include <memory>
#include <mutex>
#include <string>
#include <string_view>
#include <unordered_map>
#include <utility>
#include <vector>

#include <tessera/text/tokenizer.hpp>

#include "../fsdp/core/json/strict_json.hpp"
#include "bpe/bpe.hpp"
#include "bpe/token_tables.hpp"
#include "budget.hpp"
#include "stages/stages.hpp"

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
  std::unique_ptr<Scratch> take() const {
    std::unique_lock lock(mutex_);
    if (idle_.empty()) {
      lock.unlock();  // a workspace takes a while to make
      return std::make_unique<Scratch>();
    }
    std::unique_ptr<Scratch> scratch = std::move(idle_.back());
    idle_.pop_back();
    return scratch;
  }
  void give_back(std::unique_ptr<Scratch> scratch) const {
    const std::lock_guard lock(mutex_);
    idle_.push_back(std::move(scratch));
  }

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
