// SPDX-License-Identifier: Apache-2.0
/// @file
/// A folder that is removed with all in it.
#pragma once

#include <filesystem>
#include <string>

namespace fsdp {

class TemporaryFolder {
 public:
  /// A new one in `parent`, whose name begins so. Throws FileError.
  TemporaryFolder(const std::filesystem::path& parent, const std::string& name);
  TemporaryFolder(TemporaryFolder&&) = delete;
  ~TemporaryFolder();

  const std::filesystem::path& path() const { return path_; }

 private:
  std::filesystem::path path_;
};

}  // namespace fsdp
