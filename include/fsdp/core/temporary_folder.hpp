// SPDX-License-Identifier: Apache-2.0
/// @file
/// A temporary folder that its destructor removes with all its contents.
#pragma once

#include <filesystem>
#include <string>

namespace fsdp {

/// Returns the folder for temporary files: that of TMPDIR, or else /tmp.
std::filesystem::path temporary_directory();

class TemporaryFolder {
 public:
  /// Creates a folder in `parent` whose name begins with `name`. Throws FileError.
  TemporaryFolder(const std::filesystem::path& parent, const std::string& name);
  TemporaryFolder(TemporaryFolder&&) = delete;
  ~TemporaryFolder();

  const std::filesystem::path& path() const { return path_; }

 private:
  std::filesystem::path path_;
};

}  // namespace fsdp
