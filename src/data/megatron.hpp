// SPDX-License-Identifier: Apache-2.0
/// @file
/// The index beside the token files of Megatron-LM (its core/datasets/indexed_dataset.py): PREFIX.idx of PREFIX.bin.
///
/// 9 bytes "MMIDIDX\0\0"; u64 version 1; u8 type of tokens; u64 sequences; u64 documents; then int32 lengths and int64
/// places in bytes, one for each sequence, and int64 numbers of the sequences that begin documents. All little-endian.
#pragma once

#include <cstdint>
#include <filesystem>
#include <optional>

namespace fsdp::data {

/// Tokens of PREFIX.bin.
struct MegatronTokens {
  int token_bytes = 0;
  bool is_signed = false;
  std::int64_t tokens = 0;
};

/// The index of a path that is one, or that lies beside PREFIX.bin; nothing where there is none.
std::optional<std::filesystem::path> megatron_index(const std::filesystem::path& path);

/// PREFIX.bin of an index.
std::filesystem::path megatron_tokens_of(const std::filesystem::path& index);

/// Reads an index and compares it with its PREFIX.bin; memory does not grow with it. Sequences must lie one behind
/// another, as Megatron's builder writes them. Throws InputError with the first entry that is not as it should be.
MegatronTokens read_megatron_index(const std::filesystem::path& index);

}  // namespace fsdp::data
