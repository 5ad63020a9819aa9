// SPDX-License-Identifier: Apache-2.0
/// @file
/// A temporary folder that its destructor removes with all its contents. The folder of a killed process is removed by
/// the next process that creates a folder with the same name.
#pragma once

#include <filesystem>
#include <string>

#include <tessera/fsdp/core/file.hpp>

namespace fsdp {

class TemporaryFolder {
 public:
  /// Creates a folder in `parent` whose name begins with `name`, and removes such folders of processes that have ended.
  /// Throws FileError.
  TemporaryFolder(const std::filesystem::path& parent, const std::string& name);
  TemporaryFolder(TemporaryFolder&&) = delete;
  ~TemporaryFolder();

  const std::filesystem::path& path() const { return path_; }

 private:
  std::filesystem::path path_;
  FileDescriptor lock_;  ///< lock on the folder during the life of this process
};

}  // namespace fsdp
