// SPDX-License-Identifier: Apache-2.0
/// @file
/// The formats of token files: llm.c's, whose folder `tessera tokenize` writes with a tokens.json, and Megatron-LM's.
///
/// Megatron-LM (its core/datasets/indexed_dataset.py) has an index PREFIX.idx next to PREFIX.bin: 9 bytes
/// "MMIDIDX\0\0"; u64 version 1; u8 token type; u64 number of sequences; u64 number of document entries; then for each
/// sequence an int32 length and, in a second array, an int64 byte offset; then for each document the int64 number of
/// its first sequence, followed by the number of sequences; in multimodal data sets also an int8 mode for each
/// sequence. All little-endian.
#pragma once

#include <array>
#include <cstdint>
#include <filesystem>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include <tessera/text/tokenizer.hpp>

#include "../../../fsdp/checkpoint/posix.hpp"
#include "../files/text_files.hpp"

namespace fsdp::data {

/// A kind of token file of llm.c (its dev/data/data_common.py). The header is 256 int32, of which the first three are
/// used: magic number, version and number of tokens. The first kind is for GPT-2's tokenizer, the second for Llama 3's.
struct LlmC {
  std::int32_t magic = 0;
  std::int32_t version = 0;
  int token_bytes = 0;
};
inline constexpr std::array llm_c_kinds = {LlmC{20240520, 1, 2}, LlmC{20240801, 7, 4}};
inline constexpr std::int64_t llm_c_header_bytes = 256 * 4;
inline constexpr std::int64_t llm_c_most_tokens = 0x7FFFFFFF;  ///< per file: the header stores the number as int32

/// A token file.
struct TokenShard {
  std::string name;
  std::int64_t tokens = 0;
};

/// The contents of tokens.json.
struct TokenFolder {
  std::string made_of;  ///< digest of the texts, the tokenizer and the options
  int token_bytes = 2;
  std::vector<TokenShard> shards = {};
  TextPlace place = {};               ///< the unit to continue with
  std::int64_t skip = 0;              ///< number of tokens of that unit that are already in the shards
  std::int64_t documents = 0;         ///< number of documents up to `place`
  std::int64_t skipped = 0;           ///< number of input files that are not text
  std::int64_t replaced = 0;          ///< number of bytes up to `place` that are not Unicode and became U+FFFD
  std::int64_t replaced_in_file = 0;  ///< number of such bytes in the file of `place`
  bool complete = false;

  std::int64_t tokens() const;
};

inline constexpr const char* token_folder_file = "tokens.json";

/// Reads a folder's tokens.json; returns nothing if the file does not exist. Throws InputError for a damaged file.
std::optional<TokenFolder> read_token_folder(const std::filesystem::path& folder);

/// Replaces tokens.json atomically.
void write_token_folder(const std::filesystem::path& folder, const TokenFolder& contents);

/// Writes the shards of a folder, `tokens_000000.bin`, ... with at most `shard_tokens` each, and tokens.json after each
/// of them. A shard gets its name when it is complete; an incomplete one is removed.
class TokenWriter {
 public:
  /// Continues a folder with these contents, which must outlive this object.
  TokenWriter(std::filesystem::path folder, TokenFolder& contents, std::int64_t shard_tokens);

  /// Appends the ids of a unit, the first time without those that the shards contain already. `place`: its beginning.
  void append(std::span<const text::TokenId> ids, const TextPlace& place);
  /// Closes the last shard; the folder is then complete. `place`: the end of the texts.
  void finish(const TextPlace& place);

 private:
  void close(const TextPlace& place, std::size_t skip);  ///< syncs the shard to disk and renames it to its final name
  void save(const TextPlace& place, std::size_t skip);

  std::filesystem::path folder_;
  TokenFolder* contents_;
  std::int64_t shard_tokens_, tokens_ = 0;  // largest number of tokens of a shard; number in the open one
  std::size_t skip_;                        // number of the first unit's ids that the shards contain already
  std::optional<checkpoint::PartFile> file_;
  std::string buffer_;
};

/// The layout and number of tokens in PREFIX.bin.
struct MegatronTokens {
  int token_bytes = 0;
  bool is_signed = false;
  std::int64_t tokens = 0;
  std::int64_t documents = 0;  ///< number of documents that the index lists
};

/// Returns the index for PREFIX (even if a folder has that name), PREFIX.bin or PREFIX.idx; nothing if none exists.
std::optional<std::filesystem::path> megatron_index(const std::filesystem::path& path);

/// Returns the PREFIX.bin of an index.
std::filesystem::path megatron_tokens_of(const std::filesystem::path& index);

/// Reads an index and checks it against its PREFIX.bin, in constant memory. Sequences must be contiguous and in order,
/// as Megatron's builder writes them; modes must be 0, which is text. Throws InputError for the first invalid entry.
MegatronTokens read_megatron_index(const std::filesystem::path& index);

/// Returns the first tokens of an index's documents, in order, without duplicates. Throws InputError for bad ones.
std::vector<std::int64_t> read_megatron_documents(const std::filesystem::path& index);

}  // namespace fsdp::data
