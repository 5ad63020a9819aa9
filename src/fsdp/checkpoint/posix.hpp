// SPDX-License-Identifier: Apache-2.0
/// @file
/// Writes and syncs files; retries partial and interrupted system calls (for reading: tessera/fsdp/core/file.hpp).
/// Also the free space of a disk, checked before large writes.
#pragma once

#include <cstddef>
#include <cstdint>
#include <filesystem>
#include <optional>
#include <string_view>
#include <vector>

#include <tessera/fsdp/core/file.hpp>

namespace fsdp::checkpoint {

/// Writes all bytes at an offset. Throws FileError on failure, as the functions below do.
void write_all(const FileDescriptor& file, const std::filesystem::path& path, const void* data, std::size_t bytes,
               std::int64_t offset);

/// Closes a file. Throws errors that the system reports only on closing (such as a quota on a remote disk).
void close_file(FileDescriptor& file, const std::filesystem::path& path);

/// Creates a file, writes its content and syncs it to disk.
void write_new_file(const std::filesystem::path& path, std::string_view content);

/// A file under a temporary name. `finish` syncs the file and renames it to its final name; without it the destructor
/// removes the file.
class PartFile {
 public:
  PartFile(std::filesystem::path part, std::filesystem::path path);
  PartFile(PartFile&&) = delete;
  ~PartFile();

  void write(const void* data, std::size_t bytes, std::int64_t offset) { write_all(file_, part_, data, bytes, offset); }
  void finish();

 private:
  std::filesystem::path part_, path_;
  FileDescriptor file_;
};

/// Syncs a directory, so that files created or renamed in it are durable.
void sync_directory(const std::filesystem::path& path);

void sync_file(const FileDescriptor& file, const std::filesystem::path& path);

/// Creates a folder and its missing parents. Returns the created folders, innermost first. On failure, removes all of
/// them and throws InputError "PATH: cannot be created: ...".
std::vector<std::filesystem::path> make_folders(const std::filesystem::path& path);

/// Removes the folders that make_folders created, except those that are not empty.
void remove_made(const std::vector<std::filesystem::path>& made) noexcept;

/// Returns the free bytes on the disk of `path`, or of the closest existing parent folder; nothing if the system does
/// not report them.
std::optional<std::int64_t> bytes_left(const std::filesystem::path& path);

}  // namespace fsdp::checkpoint
