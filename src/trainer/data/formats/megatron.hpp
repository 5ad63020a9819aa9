// SPDX-License-Identifier: Apache-2.0
/// @file
/// The index beside the token files of Megatron-LM (its core/datasets/indexed_dataset.py): PREFIX.idx of PREFIX.bin.
///
/// 9 bytes "MMIDIDX\0\0"; u64 version 1; u8 type of tokens; u64 sequences; u64 documents; then int32 lengths and int64
/// places in bytes, one for each sequence, and int64 numbers of the sequences that begin documents, with the number of
/// sequences behind them; in multimodal sets an int8 mode for each sequence. All little-endian.
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
  std::int64_t documents = 0;  ///< that the index lists
};

/// Returns the index for a path: PREFIX (a folder of that name or none), PREFIX.bin or PREFIX.idx; nothing if
/// there is none.
std::optional<std::filesystem::path> megatron_index(const std::filesystem::path& path);

/// Returns PREFIX.bin of an index.
std::filesystem::path megatron_tokens_of(const std::filesystem::path& index);

/// Reads an index and checks it against its PREFIX.bin, in constant memory. Sequences must be contiguous and in order,
/// as Megatron's builder writes them; modes must be 0, which is text. Throws InputError for the first invalid entry.
MegatronTokens read_megatron_index(const std::filesystem::path& index);

/// Returns the places in tokens at which the documents of a checked index begin, in order, each once. Throws InputError
/// for an index whose documents are damaged.
std::vector<std::int64_t> read_megatron_documents(const std::filesystem::path& index);

}  // namespace fsdp::data
