// SPDX-License-Identifier: Apache-2.0
/// @file
/// Writing and syncing files by system calls that finish what they start (reading: core/file.hpp).
#pragma once

#include <cstddef>
#include <cstdint>
#include <filesystem>
#include <string_view>
#include <vector>

#include <fsdp/core/file.hpp>

namespace fsdp::checkpoint {

void write_all(const FileDescriptor& file, const std::filesystem::path& path, const void* data, std::size_t bytes,
               std::int64_t offset);

/// Throws what only closing tells (a quota on a remote disk).
void close_file(FileDescriptor& file, const std::filesystem::path& path);

/// A new file whose content is on disk when this returns.
void write_new_file(const std::filesystem::path& path, std::string_view content);

/// Makes the names in a directory as durable as the files they name.
void sync_directory(const std::filesystem::path& path);

void sync_file(const FileDescriptor& file, const std::filesystem::path& path);

/// Makes a folder and those above it that are missing. Returns those that it made, innermost first. Throws InputError
/// "PATH: cannot be created: ...", with none of them left.
std::vector<std::filesystem::path> make_folders(const std::filesystem::path& path);

/// Removes what make_folders made; a folder that is not empty stays.
void remove_made(const std::vector<std::filesystem::path>& made) noexcept;

}  // namespace fsdp::checkpoint
