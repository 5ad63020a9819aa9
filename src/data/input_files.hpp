// SPDX-License-Identifier: Apache-2.0
/// @file
/// Lists and classifies the files that --data and `tessera tokenize` name.
#pragma once

#include <cstdint>
#include <filesystem>
#include <span>
#include <vector>

#include <fsdp/core/file.hpp>

namespace fsdp::data {

/// Returns files in the order given. A folder stands for all regular files below it, sorted by path; a Megatron prefix
/// for its index. Throws InputError if a path is missing or cannot be listed.
std::vector<std::filesystem::path> input_files(std::span<const std::filesystem::path> paths);

/// Adds a file's path, size and modification time to a hash, to detect changes.
std::uint64_t hashed_state(std::uint64_t hash, const std::filesystem::path& file);

/// Returns whether bytes are binary data: they contain a NUL.
bool is_binary(std::span<const std::uint8_t> bytes);

/// Reads a file's first 8 KiB, for is_binary. Does not map the file: a page fault maps up to 16 neighbouring pages,
/// which would make every small file resident.
std::vector<std::uint8_t> head_of(const FileDescriptor& file, const std::filesystem::path& path);

}  // namespace fsdp::data
