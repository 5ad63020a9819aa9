// SPDX-License-Identifier: Apache-2.0
#include <fsdp/checkpoint/directory_lock.hpp>

#include <fcntl.h>
#include <gtest/gtest.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

#include <ctime>
#include <optional>
#include <string>
#include <vector>

#include "support/temporary_folder.hpp"

namespace fsdp::checkpoint {
namespace {

using test::TemporaryFolder;

const std::string this_host = [] {
  std::string name(256, '\0');
  ::gethostname(name.data(), name.size() - 1);
  return std::string(name.c_str());
}();

/// A lock's file as another owner left it, `age` seconds ago.
void leave(const TemporaryFolder& folder, const std::string& host, int process, int age) {
  const auto path = folder.write("run.lock", "{\"host\": \"" + host + "\", \"process\": " + std::to_string(process) +
                                                 ", \"since\": \"then\", \"start_ticks\": 1}\n");
  const timespec then{.tv_sec = std::time(nullptr) - age, .tv_nsec = 0};
  const timespec times[] = {then, then};
  ASSERT_EQ(::utimensat(AT_FDCWD, path.c_str(), times, 0), 0);
}

TEST(DirectoryLock, ASecondOneIsRefusedByTheNameOfTheFirst) {
  const TemporaryFolder folder;
  {
    const DirectoryLock first(folder.path());
    const std::string said = test::input_error_of([&] { DirectoryLock(folder.path()); });
    EXPECT_NE(said.find("another run writes there: process " + std::to_string(::getpid()) + " on " + this_host),
              std::string::npos)
        << said;
  }
  EXPECT_TRUE(std::filesystem::is_empty(folder.path()));
  EXPECT_NO_THROW(DirectoryLock(folder.path()));
}

TEST(DirectoryLock, OneOfAKilledProcessIsTakenOverWithAWarning) {
  const TemporaryFolder folder;
  const pid_t child = ::fork();
  if (child == 0) {
    const DirectoryLock lock(folder.path());
    ::_exit(0);
  }
  ASSERT_EQ(::waitpid(child, nullptr, 0), child);
  ASSERT_TRUE(std::filesystem::exists(folder.path() / "run.lock"));
  std::vector<std::string> warnings;
  const DirectoryLock lock(folder.path(), [&](const std::string& text) { warnings.push_back(text); });
  ASSERT_EQ(warnings.size(), 1u);
  EXPECT_NE(warnings[0].find("process " + std::to_string(child)), std::string::npos) << warnings[0];
}

TEST(DirectoryLock, OneOfAnotherHostIsHeldWhileItIsRenewed) {
  const TemporaryFolder folder;
  leave(folder, "elsewhere", 1, 60);
  EXPECT_INPUT_ERROR(DirectoryLock(folder.path()), "process 1 on elsewhere, which began at then");
  EXPECT_INPUT_ERROR(DirectoryLock(folder.path()), "120 s after its last renewal");  // asking renews nothing
  leave(folder, "elsewhere", 1, 121);
  std::vector<std::string> warnings;
  const DirectoryLock lock(folder.path(), [&](const std::string& text) { warnings.push_back(text); });
  EXPECT_EQ(warnings.size(), 1u);
}

TEST(DirectoryLock, WhatIsNoLockIsNobodys) {
  const TemporaryFolder folder;
  for (const char* text : {"", "nonsense", "{}", "[1]", "{\"host\": 1, \"process\": \"x\"}"}) {
    folder.write("run.lock", text);
    EXPECT_NO_THROW(DirectoryLock(folder.path())) << text;
  }
}

TEST(DirectoryLock, FoldersThatItMadeAndThatStayEmptyGoWithIt) {
  const TemporaryFolder folder;
  { const DirectoryLock lock(folder.path() / "a" / "b"); }
  EXPECT_TRUE(std::filesystem::is_empty(folder.path()));
  {
    const DirectoryLock lock(folder.path() / "a" / "b");
    folder.write("a/file", "");
  }
  EXPECT_TRUE(std::filesystem::exists(folder.path() / "a" / "file"));
  EXPECT_FALSE(std::filesystem::exists(folder.path() / "a" / "b"));
}

}  // namespace
}  // namespace fsdp::checkpoint
