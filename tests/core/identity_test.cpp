// SPDX-License-Identifier: Apache-2.0
#include <tessera/fsdp/core/identity.hpp>

#include <filesystem>
#include <string>

#include <gtest/gtest.h>

#include "support/temporary_folder.hpp"

namespace fsdp {
namespace {

TEST(DigestOfFile, ChangesWithAnyByteAndWithTheLength) {
  const test::TemporaryFolder folder;
  const auto digest = [&](const std::string& content) {
    folder.write("file", content);
    return digest_of_file(folder.path() / "file");
  };
  const std::string text(300'000, 'a');
  const std::uint64_t whole = digest(text);
  EXPECT_EQ(digest(text), whole);
  for (const std::size_t at : {std::size_t{0}, std::size_t{262'144}, text.size() - 1}) {
    std::string other = text;
    other[at] = 'b';
    EXPECT_NE(digest(other), whole) << at;
  }
  EXPECT_NE(digest(text + 'a'), whole);
  EXPECT_NE(digest(std::string("a\0", 2)), digest("a"));
  EXPECT_NE(digest(""), digest(std::string(1, '\0')));
}

TEST(DigestOfFile, OfALargeFileCoversBothEnds) {
  const test::TemporaryFolder folder;
  folder.write("file", "");
  const std::filesystem::path path = folder.path() / "file";
  std::filesystem::resize_file(path, std::uintmax_t{65} << 20);
  const std::uint64_t zeros = digest_of_file(path);
  std::filesystem::resize_file(path, (std::uintmax_t{65} << 20) - 1);
  EXPECT_NE(digest_of_file(path), zeros);
}

TEST(BuildIdentity, ContainsTheVersionAndTheLinkersBuildId) {
  EXPECT_EQ(build_identity(), build_identity());
  EXPECT_GT(build_identity().find(" by "), std::string("build = 0.1.0 ").size());
}

}  // namespace
}  // namespace fsdp
