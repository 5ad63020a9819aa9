// SPDX-License-Identifier: Apache-2.0
/// @file
/// The files that --data and `tessera tokenize` name.
#pragma once

#include <cstdint>
#include <filesystem>
#include <span>
#include <vector>

#include <fsdp/core/file.hpp>

namespace fsdp::data {

/// Files in the order given; a folder stands for the regular files below it, sorted by path. Throws InputError where
/// one is missing or cannot be listed.
std::vector<std::filesystem::path> input_files(std::span<const std::filesystem::path> paths);

/// A hash, and what tells whether a file is still the same: where it is, how large, and when it was written.
std::uint64_t hashed_state(std::uint64_t hash, const std::filesystem::path& file);

/// Whether bytes are no text: a NUL is among them.
bool is_binary(std::span<const std::uint8_t> bytes);

/// A file's first 8 KiB, in which a NUL makes it binary. By read, not by mapping: a fault maps up to 16 neighbouring
/// pages, which would make every small file resident.
std::vector<std::uint8_t> head_of(const FileDescriptor& file, const std::filesystem::path& path);

}  // namespace fsdp::data
