// SPDX-License-Identifier: Apache-2.0
/// @file
/// A folder of tokens that were made of text: llm.c's token files, and tokens.json, which says of what they were made
/// and how far it is done.
#pragma once

#include <cstdint>
#include <filesystem>
#include <optional>
#include <string>
#include <vector>

#include <fsdp/text/tokenizer.hpp>

#include "text_units.hpp"

namespace fsdp::data {

struct TokenShard {
  std::string name;
  std::int64_t tokens = 0;
};

struct TokenFolder {
  std::string made_of;  ///< a digest of the texts, the tokenizer and what was asked of it
  int token_bytes = 2;
  std::vector<TokenShard> shards = {};
  TextPlace place = {};        ///< of the unit to go on with
  std::int64_t skip = 0;       ///< tokens of that unit that the shards hold
  std::int64_t documents = 0;  ///< up to `place`
  bool complete = false;

  std::int64_t tokens() const;
};

inline constexpr const char* token_folder_file = "tokens.json";

/// What a folder says; nothing where it has no tokens.json. Throws InputError for a damaged one.
std::optional<TokenFolder> read_token_folder(const std::filesystem::path& folder);

/// Replaces tokens.json in one rename.
void write_token_folder(const std::filesystem::path& folder, const TokenFolder& contents);

/// Writes shards of a folder: `tokens_000000.bin`, ... of at most `shard_tokens`, which appear when they are whole.
class TokenWriter {
 public:
  TokenWriter(std::filesystem::path folder, int token_bytes, std::int64_t shard_tokens, std::size_t shards);
  TokenWriter(const TokenWriter&) = delete;
  ~TokenWriter();  ///< removes what is not whole

  /// Takes ids up to the end of the shard; how many. A shard that is full must be closed.
  std::size_t append(const text::TokenId* ids, std::size_t count);
  bool full() const { return tokens_ == shard_tokens_; }
  bool empty() const { return tokens_ == 0; }
  TokenShard close();  ///< the shard is on disk, under its name

 private:
  void begin();

  std::filesystem::path folder_, part_;
  int token_bytes_;
  std::int64_t shard_tokens_, tokens_ = 0;
  std::size_t shards_;
  FileDescriptor file_;
  std::string buffer_;
};

}  // namespace fsdp::data
