// SPDX-License-Identifier: Apache-2.0
/// @file
/// What is said of a path that should be a folder.
#pragma once

#include <filesystem>
#include <string>
#include <system_error>

#include <tessera/fsdp/core/error.hpp>

namespace fsdp {

/// Throws InputError if a path is a file.
inline void require_no_file(const std::filesystem::path& path) {
  std::error_code error;
  const std::filesystem::file_status there = std::filesystem::status(path, error);
  require<InputError>(!std::filesystem::exists(there) || std::filesystem::is_directory(there), path.string(),
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
