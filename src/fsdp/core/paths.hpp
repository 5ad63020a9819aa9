// SPDX-License-Identifier: Apache-2.0
/// @file
/// Queries about the entry at a path: a file, a folder or nothing.
#pragma once

#include <filesystem>
#include <string>
#include <system_error>
#include <vector>

#include <tessera/fsdp/core/error.hpp>

namespace fsdp {

/// Returns whether a file, folder or other entry exists; false if the system does not permit the query.
inline bool path_exists(const std::filesystem::path& path) {
  std::error_code error;
  return std::filesystem::exists(path, error);
}

/// The same, but also true for a broken symbolic link, and true if the system does not permit the query: opening the
/// path then reports the error.
inline bool entry_exists(const std::filesystem::path& path) {
  std::error_code error;
  return std::filesystem::symlink_status(path, error).type() != std::filesystem::file_type::not_found;
}

/// Returns whether a folder exists; false if the system does not permit the query.
inline bool folder_exists(const std::filesystem::path& path) {
  std::error_code error;
  return std::filesystem::is_directory(path, error);
}

/// Returns the entries of a folder, in any order; after an error, those that were listed before it.
inline std::vector<std::filesystem::path> entries_of(const std::filesystem::path& folder, std::error_code& error) {
  std::vector<std::filesystem::path> entries;
  std::filesystem::directory_iterator entry(folder, error);
  for (; !error && entry != std::filesystem::directory_iterator(); entry.increment(error))
    entries.push_back(entry->path());
  return entries;
}

/// Throws InputError if a path is a file.
inline void require_no_file(const std::filesystem::path& path) {
  require<InputError>(!path_exists(path) || folder_exists(path), path.string(),
                      ": is a file; give the folder that holds it");
}

/// Throws InputError unless a path is a folder.
inline void require_folder(const std::filesystem::path& path) {
  require_no_file(path);
  std::error_code error;
  const bool there = std::filesystem::is_directory(path, error);
  require<InputError>(there, path.string(), ": no such folder",
                      error && error != std::errc::no_such_file_or_directory ? ": " + error.message() : std::string());
}

}  // namespace fsdp
