// SPDX-License-Identifier: Apache-2.0
/// @file
/// POSIX file calls that finish what they start and say which file failed and why.
#pragma once

#include <cstddef>
#include <cstdint>
#include <filesystem>
#include <string_view>

#include <fsdp/checkpoint/safetensors.hpp>

namespace fsdp::checkpoint {

/// "PATH: cannot be WHAT: STRERROR" of errno, as FileError (models/strict_json.hpp).
[[noreturn]] void throw_errno(const std::filesystem::path& path, std::string_view what);

/// open(2), closed when a program is executed; `what` was to be done, as in throw_errno. New files have mode 0644.
FileDescriptor open_file(const std::filesystem::path& path, int flags, std::string_view what);

void write_all(const FileDescriptor& file, const std::filesystem::path& path, const void* data, std::size_t bytes,
               std::int64_t offset);

/// Throws where the file ends before.
void read_all(const FileDescriptor& file, const std::filesystem::path& path, void* data, std::size_t bytes,
              std::int64_t offset);

/// Throws what only closing tells (a quota on a remote disk).
void close_file(FileDescriptor& file, const std::filesystem::path& path);

/// A new file whose content is on disk when this returns.
void write_new_file(const std::filesystem::path& path, std::string_view content);

/// Makes the names in a directory as durable as the files they name.
void sync_directory(const std::filesystem::path& path);

void sync_file(const FileDescriptor& file, const std::filesystem::path& path);

}  // namespace fsdp::checkpoint
