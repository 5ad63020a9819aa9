// SPDX-License-Identifier: Apache-2.0
#include <gtest/gtest.h>

#include "src/fsdp/checkpoint/posix.hpp"
#include "support/temporary_folder.hpp"

namespace fsdp::checkpoint {
namespace {

TEST(PartFile, HasItsNameWhenItIsFinishedAndIsGoneWhereItIsNot) {
  const test::TemporaryFolder folder;
  const std::filesystem::path part = folder.path() / "a.part", path = folder.path() / "a";
  {
    PartFile file(part, path);
    file.write("abc", 3, 0);
    EXPECT_TRUE(std::filesystem::exists(part));
  }
  EXPECT_TRUE(std::filesystem::is_empty(folder.path()));

  PartFile file(part, path);
  file.write("bc", 2, 1);
  file.write("a", 1, 0);
  file.finish();
  EXPECT_EQ(test::content_of(path), "abc");
  EXPECT_FALSE(std::filesystem::exists(part));
}

TEST(PartFile, IsGoneIfItCannotHaveItsName) {
  const test::TemporaryFolder folder;
  folder.write("a/in_the_way", "");
  {
    PartFile file(folder.path() / "a.part", folder.path() / "a");
    EXPECT_THROW(file.finish(), FileError);
  }
  EXPECT_FALSE(std::filesystem::exists(folder.path() / "a.part"));
}

TEST(PartFile, ReplacesWhatAKilledRunHasLeft) {
  const test::TemporaryFolder folder;
  folder.write("elsewhere", "kept");
  std::filesystem::create_symlink(folder.path() / "elsewhere", folder.path() / "a.part");
  PartFile file(folder.path() / "a.part", folder.path() / "a");
  file.write("new", 3, 0);
  file.finish();
  EXPECT_EQ(test::content_of(folder.path() / "a"), "new");
  EXPECT_EQ(test::content_of(folder.path() / "elsewhere"), "kept");
}

}  // namespace
}  // namespace fsdp::checkpoint
