// SPDX-License-Identifier: Apache-2.0
/// @file
/// For tests that use files: a temporary folder from the kit, and golden folders. Includes errors.hpp, which most need
/// too.
#pragma once

#include <filesystem>
#include <fstream>
#include <iterator>
#include <string>

#include <support/errors.hpp>
#include <tessera/fsdp/testing/temporary_folder.hpp>

namespace fsdp::test {

using fsdp::testing::TemporaryFolder;

inline std::string content_of(const std::filesystem::path& path) {
  std::ifstream file(path, std::ios::binary);
  return {std::istreambuf_iterator<char>(file), {}};
}

inline std::filesystem::path golden(const std::string& name) {
  return std::filesystem::path(TESSERA_TEST_DATA) / "golden" / name;
}

}  // namespace fsdp::test
