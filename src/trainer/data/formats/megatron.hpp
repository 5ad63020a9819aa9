// SPDX-License-Identifier: Apache-2.0
/// @file
/// The index of Megatron-LM's token files (its core/datasets/indexed_dataset.py): PREFIX.idx next to PREFIX.bin.
///
/// 9 bytes "MMIDIDX\0\0"; u64 version 1; u8 token type; u64 number of sequences; u64 number of document entries; then
/// for each sequence an int32 length and, in a second array, an int64 byte offset; then for each document the int64
/// number of its first sequence, followed by the number of sequences; in multimodal data sets also an int8 mode for
/// each sequence. All little-endian.
#pragma once

#include <cstdint>
#include <filesystem>
#include <optional>
#include <vector>

namespace fsdp::data {

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
