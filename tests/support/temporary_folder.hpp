// SPDX-License-Identifier: Apache-2.0
/// @file
/// For tests that touch files: the kit's folder of their own, golden folders, and the sentence of an expected error.
#pragma once

#include <filesystem>
#include <fstream>
#include <iterator>
#include <string>

#include <gtest/gtest.h>

#include <tessera/fsdp/core/error.hpp>
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
