// SPDX-License-Identifier: Apache-2.0
/// @file
/// Lists the files that --data and `tessera tokenize` name.
#pragma once

#include <cstdint>
#include <filesystem>
#include <span>
#include <vector>

#include <tessera/fsdp/core/file.hpp>
#include <tessera/trainer/data/left_out.hpp>

namespace fsdp::data {

/// A file to read.
struct InputFile {
  std::filesystem::path path = {};
  bool named = false;  ///< by its own path; false: found in a folder
};

/// Files to read, and what folders hold besides.
struct InputFiles {
  std::vector<InputFile> files = {};
  LeftOut left_out = {};
};

/// Lists files in the order given. A folder stands for the regular files below it, sorted by path; a Megatron prefix
/// for its index. Links are followed, each folder is read once. Names that begin with a dot, leftovers of editors
/// (*~, #*#, *.swp, *.tmp, *.bak, *.orig), run.lock, links to nothing, and what is neither file nor folder are left out
/// of folders. Throws InputError if a path is missing or cannot be listed.
InputFiles input_files(std::span<const std::filesystem::path> paths);

/// Adds a file's path, size and modification time to a hash, to detect changes.
std::uint64_t hashed_state(std::uint64_t hash, const std::filesystem::path& file);

/// Returns whether bytes are binary data: they contain a NUL.
bool is_binary(std::span<const std::uint8_t> bytes);

/// Reads a file's first 8 KiB, for is_binary. Does not map the file: a page fault maps up to 16 neighbouring pages,
/// which would make every small file resident.
std::vector<std::uint8_t> head_of(const FileDescriptor& file, const std::filesystem::path& path);

}  // namespace fsdp::data
