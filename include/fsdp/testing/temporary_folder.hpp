// SPDX-License-Identifier: Apache-2.0
/// @file
/// A temporary folder for a test.
#pragma once

#include <filesystem>
#include <fstream>
#include <string>
#include <string_view>
#include <system_error>

#include <unistd.h>

#include <tessera/fsdp/core/file.hpp>

namespace fsdp::testing {

/// An empty folder. The destructor removes it with its contents. It is in /dev/shm if that is writable, because fsync
/// costs nothing there.
class TemporaryFolder : public fsdp::TemporaryFolder {
 public:
  TemporaryFolder() : fsdp::TemporaryFolder(parent(), "tessera-test") {}

  std::filesystem::path write(const std::string& name, std::string_view content) const {
    const std::filesystem::path file = path() / name;
    std::filesystem::create_directories(file.parent_path());
    std::ofstream(file, std::ios::binary) << content;
    return file;
  }

 private:
  static std::filesystem::path parent() {
    const std::filesystem::path memory = "/dev/shm";
    std::error_code none;
    const bool usable = std::filesystem::is_directory(memory, none) && ::access(memory.c_str(), W_OK) == 0;
    return usable ? memory : std::filesystem::temp_directory_path();
  }
};

}  // namespace fsdp::testing
