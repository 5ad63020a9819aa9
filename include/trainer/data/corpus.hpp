// SPDX-License-Identifier: Apache-2.0
/// @file
/// A sequence of tokens that spans files: bytes of text, or token files that a tokenizer wrote.
///
/// Files are mapped only while a range is copied out of them, so resident memory does not grow with the data.
#pragma once

#include <cstdint>
#include <filesystem>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include <tessera/trainer/data/data_inputs.hpp>

namespace fsdp::data {

struct InputFile;

/// The format of data files. Token files of llm.c (dev/data/data_common.py) start with a header of 256 int32: magic
/// number, version, number of tokens, then zeros. Those of nanoGPT and others have no header. All are little-endian.
enum class TokenFormat : std::uint8_t {
  automatic,  ///< token files of llm.c and Megatron-LM (PREFIX.bin with its PREFIX.idx), known by their magic numbers;
              ///< any other file is text
  bytes,      ///< text; each byte is a token
  u16,        ///< tokens of 16 bits, without a header
  u32,        ///< tokens of 32 bits, without a header
  chat,       ///< conversations, one per line of JSONL (tessera/trainer/data/conversations.hpp); not for a Corpus
};

/// Conversions for flags (tessera/trainer/flags/flag_set.hpp): auto, bytes, u16, u32, chat.
void from_text(std::string_view flag, std::string_view text, TokenFormat& value);
std::string to_text(TokenFormat value);

/// The layout of tokens in a file; the same for all files of a corpus.
struct TokenLayout {
  int token_bytes = 1;
  std::int64_t header = 0;  ///< bytes before the first token
  bool is_signed = false;   ///< a negative number is not a valid token
  bool text = true;         ///< text: each byte is a token

  std::string unit() const;  ///< "bytes" or "tokens of 16 bits"
  friend bool operator==(const TokenLayout&, const TokenLayout&) = default;
};

/// A file of a corpus.
struct CorpusFile {
  std::filesystem::path path = {};
  std::int64_t begin = 0;   ///< index of its first token in the corpus
  std::int64_t header = 0;  ///< bytes before its first token: the layout's header, or the byte order mark of a text
  std::int64_t bytes = 0;   ///< size in bytes, including the header
  std::filesystem::path index = {};  ///< path of Megatron-LM's index; empty if the file has none
};

/// The file of a token and its byte offset in the file.
struct CorpusPlace {
  std::filesystem::path path = {};
  std::int64_t byte = 0;
};

/// Data files as one sequence of tokens. Immutable; several threads can call `copy` at once.
class Corpus {
 public:
  /// Opens files in the given order. A folder stands for the tokens that `tessera tokenize` wrote into it, or else for
  /// all regular files below it, sorted by path, without hidden ones. Files with a NUL byte in their first 8 KiB are
  /// not text; in folders, they and files of other known formats are skipped and counted. Throws InputError if a path
  /// is missing, if a file given by its own path is of another known format, if no tokens are found, if files have
  /// different layouts, or if a token file's size differs from its header.
  explicit Corpus(std::span<const std::filesystem::path> paths, TokenFormat format = TokenFormat::automatic);

  std::int64_t size() const { return size_; }                         ///< number of tokens
  const TokenLayout& layout() const { return layout_; }               ///< the layout of all its files
  std::int64_t skipped_binary() const { return left_out_.binary(); }  ///< number of files that are not text
  const LeftOut& left_out() const { return left_out_; }  ///< all files and folder entries that were skipped
  /// Returns "left out: ..., 3 bytes that are not Unicode text were read as U+FFFD"; empty if nothing was lost.
  std::string losses() const;
  std::span<const CorpusFile> files() const { return files_; }  ///< all files, in the order of their tokens

  /// The number of documents that Megatron-LM's indices list.
  std::int64_t indexed_documents() const { return indexed_documents_; }
  /// Returns the indices of those documents' first tokens, in order. Throws InputError for a file without an index.
  std::vector<std::int64_t> document_borders() const;
  /// Returns whether the corpus contains a token. Reads the data up to the first occurrence.
  bool holds(std::uint32_t token) const;

  /// Copies tokens [begin, begin + out.size()) to `out`. A number that is not a valid token of the layout becomes
  /// 2^32 - 1. Throws InputError if a file's size has changed since it was opened.
  void copy(std::int64_t begin, std::span<std::uint32_t> out) const;

  CorpusPlace place_of(std::int64_t token) const;  ///< the file of a token and its byte offset, for error messages

 private:
  void add(const InputFile& input, TokenFormat format);
  void add_text(const InputFile& input, TokenFormat format);
  void append(const std::filesystem::path& path, const TokenLayout& layout, std::int64_t header, std::int64_t bytes);

  std::vector<CorpusFile> files_;
  std::int64_t size_ = 0;
  TokenLayout layout_ = {};
  LeftOut left_out_;
  std::int64_t indexed_documents_ = 0;
  std::int64_t replaced_bytes_ = 0;  // counted when the text was tokenized
};

}  // namespace fsdp::data
