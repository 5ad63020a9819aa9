// SPDX-License-Identifier: Apache-2.0
#include <tessera/fsdp/core/file.hpp>

#include <sys/wait.h>
#include <unistd.h>

#include <filesystem>
#include <fstream>

#include <gtest/gtest.h>

#include "support/temporary_folder.hpp"

namespace fsdp {
namespace {

std::size_t entries(const std::filesystem::path& folder) {
  return static_cast<std::size_t>(std::distance(std::filesystem::directory_iterator(folder), {}));
}

TEST(TemporaryFolder, IsRemovedWithItsContents) {
  const test::TemporaryFolder parent;
  {
    const TemporaryFolder one(parent.path(), "tokens"), other(parent.path(), "tokens");
    std::ofstream(one.path() / "file") << "text";
    EXPECT_EQ(entries(parent.path()), 2u) << "a live folder stays";
  }
  EXPECT_EQ(entries(parent.path()), 0u);
}

TEST(TemporaryFolder, RemovesFoldersOfKilledProcesses) {
  const test::TemporaryFolder parent;
  const pid_t child = ::fork();
  if (child == 0) {
    const TemporaryFolder left(parent.path(), "tokens");
    std::ofstream(left.path() / "file") << "text";
    ::_exit(0);
  }
  ASSERT_EQ(::waitpid(child, nullptr, 0), child);
  ASSERT_EQ(entries(parent.path()), 1u);
  for (const char* kept : {"tokens-abcdef", "tokens-12-ab", "tokens-x-abcdef", "other-12-abcdef"})
    std::filesystem::create_directory(parent.path() / kept);

  const TemporaryFolder fresh(parent.path(), "tokens");
  EXPECT_EQ(entries(parent.path()), 5u) << "the four that no process makes so, and the fresh one";
}

}  // namespace
}  // namespace fsdp
