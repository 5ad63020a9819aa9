// SPDX-License-Identifier: Apache-2.0
/// @file
/// For tests that touch files: a folder of their own, golden folders, and the sentence of an expected error.
#pragma once

#include <gtest/gtest.h>
#include <stdlib.h>
#include <unistd.h>

#include <filesystem>
#include <fstream>
#include <iterator>
#include <string>
#include <string_view>

#include <fsdp/core/error.hpp>

namespace fsdp::test {

/// An empty folder that is removed with all in it.
class TemporaryFolder {
 public:
  TemporaryFolder() {
    const std::filesystem::path memory = "/dev/shm";  // where syncing costs nothing
    std::error_code none;
    const bool usable = std::filesystem::is_directory(memory, none) && ::access(memory.c_str(), W_OK) == 0;
    std::string name = ((usable ? memory : std::filesystem::temp_directory_path()) / "tessera-test-XXXXXX").string();
    if (::mkdtemp(name.data()) == nullptr) ADD_FAILURE() << "cannot make a folder " << name;
    path_ = name;
  }
  TemporaryFolder(TemporaryFolder&&) = delete;
  ~TemporaryFolder() {
    std::error_code ignored;
    std::filesystem::remove_all(path_, ignored);
  }

  const std::filesystem::path& path() const { return path_; }

  std::filesystem::path write(const std::string& name, std::string_view content) const {
    const std::filesystem::path path = path_ / name;
    std::filesystem::create_directories(path.parent_path());
    std::ofstream(path, std::ios::binary) << content;
    return path;
  }

 private:
  std::filesystem::path path_;
};

inline std::string content_of(const std::filesystem::path& path) {
  std::ifstream file(path, std::ios::binary);
  return {std::istreambuf_iterator<char>(file), {}};
}

inline std::filesystem::path golden(const std::string& name) {
  return std::filesystem::path(TESSERA_TEST_DATA) / "golden" / name;
}

/// What the call's InputError says; empty, with a failure, where it throws none.
template <class Call>
std::string input_error_of(Call&& call) {
  try {
    call();
  } catch (const InputError& error) {
    return error.what();
  }
  ADD_FAILURE() << "no InputError was thrown";
  return {};
}

}  // namespace fsdp::test

/// The call throws InputError whose sentence contains the text.
#define EXPECT_INPUT_ERROR(call, text)                                            \
  do {                                                                            \
    const std::string said = ::fsdp::test::input_error_of([&] { (void)(call); }); \
    EXPECT_NE(said.find(text), std::string::npos) << said;                        \
  } while (false)
