// SPDX-License-Identifier: Apache-2.0
/// @file
/// A temporary folder that its destructor removes with all its contents. What a killed process leaves behind is removed
/// by the next process that makes a folder of that name.
#pragma once

#include <filesystem>
#include <string>

#include <tessera/fsdp/core/file.hpp>

namespace fsdp {

class TemporaryFolder {
 public:
  /// Creates a folder in `parent` whose name begins with `name`, and removes such folders whose processes have ended.
  /// Throws FileError.
  TemporaryFolder(const std::filesystem::path& parent, const std::string& name);
  TemporaryFolder(TemporaryFolder&&) = delete;
  ~TemporaryFolder();

  const std::filesystem::path& path() const { return path_; }

 private:
  std::filesystem::path path_;
  FileDescriptor lock_;  ///< on the folder, while this process lives
};

}  // namespace fsdp
