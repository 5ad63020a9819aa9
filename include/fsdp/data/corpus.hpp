// SPDX-License-Identifier: Apache-2.0
/// @file
/// Files as one sequence of tokens: the bytes of text, or what a tokenizer made.
///
/// Files are mapped only while a range is copied out of them, so resident memory does not grow with the data.
#pragma once

#include <cstdint>
#include <filesystem>
#include <span>
#include <string>
#include <string_view>
#include <vector>

namespace fsdp::data {

/// What files hold. The token files of llm.c (dev/data/data_common.py) begin with 256 int32, the first of which are a
/// magic number, a version and the number of tokens; those of nanoGPT and others are tokens alone. All little-endian.
enum class TokenFormat : std::uint8_t {
  automatic,  ///< token files of llm.c and Megatron-LM (PREFIX.bin with its PREFIX.idx), known by their magic numbers;
              ///< any other file is text
  bytes,      ///< text, each byte a token
  u16,        ///< tokens of 16 bits, without a header
  u32,        ///< tokens of 32 bits, without a header
  chat,       ///< conversations, one a line of JSONL (data/conversations.hpp): no corpus, which refuses it
};

/// As flags are written (train/flag_set.hpp): auto, bytes, u16, u32, chat.
void from_text(std::string_view flag, std::string_view text, TokenFormat& value);
std::string to_text(TokenFormat value);

/// How the tokens of a corpus stand in each of its files.
struct TokenLayout {
  int token_bytes = 1;
  std::int64_t header = 0;  ///< bytes before the first token
  bool is_signed = false;   ///< negative tokens are none
  bool text = true;         ///< each byte of text is a token

  /// "bytes" or "tokens of 16 bits".
  std::string unit() const;
  friend bool operator==(const TokenLayout&, const TokenLayout&) = default;
};

/// A file and where its first token stands in the corpus.
struct CorpusFile {
  std::filesystem::path path = {};
  std::int64_t begin = 0;  ///< in tokens
  std::int64_t bytes = 0;  ///< with its header
};

/// Where a token stands.
struct CorpusPlace {
  std::filesystem::path path = {};
  std::int64_t byte = 0;
};

/// Immutable; `copy` may be called from several threads at once.
class Corpus {
 public:
  /// Files in the order given; a folder stands for the regular files below it, sorted by path, or for the tokens that
  /// `tessera tokenize` wrote into it. Files with a NUL byte in their first 8 KiB are skipped and counted where text is
  /// read. Throws InputError where a path is missing, where nothing is left, where files of several layouts meet, and
  /// where a token file is not as long as it says.
  explicit Corpus(std::span<const std::filesystem::path> paths, TokenFormat format = TokenFormat::automatic);

  std::int64_t size() const { return size_; }  ///< tokens
  /// The same of all files.
  const TokenLayout& layout() const { return layout_; }
  std::int64_t skipped_binary() const { return skipped_; }  ///< files
  /// In the order of their tokens.
  std::span<const CorpusFile> files() const { return files_; }

  /// Tokens [begin, begin + out.size()). Throws InputError where a file has changed its size meanwhile.
  void copy(std::int64_t begin, std::span<std::uint32_t> out) const;

  /// File and byte of a token, for messages.
  CorpusPlace place_of(std::int64_t token) const;

 private:
  void add(const std::filesystem::path& path, TokenFormat format);
  void add_megatron(const std::filesystem::path& index);
  void append(const std::filesystem::path& path, const TokenLayout& layout, std::int64_t bytes);

  std::vector<CorpusFile> files_;
  std::int64_t size_ = 0;
  TokenLayout layout_ = {};
  std::int64_t skipped_ = 0;
};

}  // namespace fsdp::data
