// SPDX-License-Identifier: Apache-2.0
#include <tessera/fsdp/checkpoint/directory_lock.hpp>

#include <fcntl.h>
#include <gtest/gtest.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

#include <chrono>
#include <ctime>
#include <stop_token>
#include <string>
#include <thread>
#include <vector>

#include "support/temporary_folder.hpp"

namespace fsdp::checkpoint {
namespace {

using std::chrono::milliseconds;
using test::append_to;
using test::TemporaryFolder;

const std::string this_host = [] {
  std::string name(256, '\0');
  ::gethostname(name.data(), name.size() - 1);
  return std::string(name.c_str());
}();

void set_age(const std::filesystem::path& path, int age) {
  const timespec then{.tv_sec = std::time(nullptr) - age, .tv_nsec = 0};
  const timespec times[] = {then, then};
  EXPECT_EQ(::utimensat(AT_FDCWD, path.c_str(), times, 0), 0);
}

/// Writes a lock file of another owner that is `age` seconds old by that owner's clock.
std::filesystem::path leave(const TemporaryFolder& folder, const std::string& host, int process, int age) {
  const auto path = folder.write("run.lock", "{\"host\": \"" + host + "\", \"process\": " + std::to_string(process) +
                                                 ", \"since\": \"then\", \"start_ticks\": 1}\n");
  set_age(path, age);
  return path;
}

TEST(DirectoryLock, ASecondLockIsRefusedAndReportsTheOwner) {
  const TemporaryFolder folder;
  {
    const DirectoryLock first(folder.path());
    const std::string said = test::input_error_of([&] { DirectoryLock(folder.path()); });
    test::expect_parts(said, {"another run writes there: process " + std::to_string(::getpid()) + " on " + this_host});
  }
  EXPECT_TRUE(std::filesystem::is_empty(folder.path()));
  EXPECT_NO_THROW(DirectoryLock(folder.path()));
}

TEST(DirectoryLock, TheLockOfAKilledProcessIsTakenOverWithAWarning) {
  const TemporaryFolder folder;
  const pid_t child = ::fork();
  if (child == 0) {
    const DirectoryLock lock(folder.path());
    ::_exit(0);
  }
  ASSERT_EQ(::waitpid(child, nullptr, 0), child);
  ASSERT_TRUE(std::filesystem::exists(folder.path() / "run.lock"));
  std::vector<std::string> warnings;
  const DirectoryLock lock(folder.path(), append_to(warnings));
  ASSERT_EQ(warnings.size(), 1u);
  test::expect_parts(warnings[0], {"process " + std::to_string(child)});
}

constexpr LockTimes soon{.renewed_every = milliseconds(20), .watched_for = milliseconds(200)};

TEST(DirectoryLock, ARenewedLockOfAnotherHostIsRespectedDespiteClockSkew) {
  for (const int age : {-3600, 0, 60, 3600}) {
    const TemporaryFolder folder;
    const std::filesystem::path path = leave(folder, "elsewhere", 1, age);
    std::vector<std::string> warnings;
    std::jthread owner([&](const std::stop_token& stop) {
      for (int renewal = 1; !stop.stop_requested(); ++renewal) {
        std::this_thread::sleep_for(soon.renewed_every);
        set_age(path, age + renewal);  // backwards, as a corrected clock may go
      }
    });
    EXPECT_INPUT_ERROR(DirectoryLock(folder.path(), append_to(warnings), soon),
                       "another run writes there: process 1 on elsewhere, which began at then; two would destroy");
    EXPECT_EQ(warnings, std::vector{path.string() + " is of process 1 on elsewhere, which began at then: waits up to "
                                                    "0.2 s to see whether that run still renews it"});
  }
}

TEST(DirectoryLock, AStaleLockOfAnotherHostIsTakenOverDespiteClockSkew) {
  for (const int age : {-3600, 0, 60, 3600}) {
    const TemporaryFolder folder;
    const std::filesystem::path path = leave(folder, "elsewhere", 1, age);
    std::vector<std::string> warnings;
    const DirectoryLock lock(folder.path(), append_to(warnings), soon);
    ASSERT_EQ(warnings.size(), 2u) << age;
    EXPECT_EQ(warnings[1], path.string() +
                               " was left by process 1 on elsewhere, which began at then; that run has "
                               "ended, its lock is taken over");
  }
}

TEST(DirectoryLock, ALockThatItsOwnerRemovesWhileWeWaitIsFree) {
  const TemporaryFolder folder;
  const std::filesystem::path path = leave(folder, "elsewhere", 1, 0);
  std::vector<std::string> warnings;
  std::jthread owner([&] {
    std::this_thread::sleep_for(soon.renewed_every);
    std::filesystem::remove(path);
  });
  const DirectoryLock lock(folder.path(), append_to(warnings), soon);
  EXPECT_EQ(warnings.size(), 1u);
}

TEST(DirectoryLock, AHostOfTheSameNameIsTreatedAsAnotherHost) {
  const TemporaryFolder folder;
  folder.write("run.lock",
               "{\"host\": \"" + this_host + "\", \"process\": 1, \"since\": \"then\", \"processes\": \"x\"}");
  std::vector<std::string> warnings;
  const DirectoryLock lock(folder.path(), append_to(warnings), soon);
  EXPECT_EQ(warnings.size(), 2u) << "it was not watched";
}

TEST(DirectoryLock, ALockOfAnotherContainerOnThisKernelIsWatchedFirst) {
  const TemporaryFolder folder;
  std::string boot = test::content_of("/proc/sys/kernel/random/boot_id");
  boot.pop_back();
  folder.write("run.lock",
               "{\"host\": \"pod\", \"process\": 1, \"since\": \"then\", \"processes\": \"" + boot + " pid:[1]\"}");
  std::vector<std::string> warnings;
  const DirectoryLock lock(folder.path(), append_to(warnings), soon);
  EXPECT_EQ(warnings.size(), 1u) << "it was watched";
}

TEST(DirectoryLock, TheOwnerNoticesThatItsLockWasTakenOver) {
  const TemporaryFolder folder;
  {
    const DirectoryLock lock(folder.path());
    lock.require_held();
    leave(folder, "elsewhere", 1, 0);
    EXPECT_INPUT_ERROR(lock.require_held(), ": process 1 on elsewhere, which began at then has taken over its lock");
  }
  EXPECT_TRUE(std::filesystem::exists(folder.path() / "run.lock")) << "which is another's";
}

TEST(RequireLockSeen, RefusesAFolderThatDoesNotContainOurLock) {
  const TemporaryFolder folder, other;
  const DirectoryLock lock(folder.path());
  EXPECT_NO_THROW(require_lock_seen(folder.path(), lock.text()));
  const auto seen_in_other = [&] { require_lock_seen(other.path(), lock.text(), milliseconds(1)); };
  EXPECT_INPUT_ERROR(seen_in_other(),
                     ": is not the folder that rank 0 writes, or cannot be written from here: run.lock: "
                     "No such file or directory; give a folder that all hosts share");
  const DirectoryLock another(other.path());
  EXPECT_INPUT_ERROR(seen_in_other(), "run.lock: is of another run");
}

TEST(RequireLockSeen, WaitsForALockFileThatAppearsLate) {
  const TemporaryFolder folder, other;
  const DirectoryLock lock(folder.path());
  std::jthread server([&] {
    std::this_thread::sleep_for(milliseconds(60));
    other.write("run.lock", lock.text());
  });
  EXPECT_NO_THROW(require_lock_seen(other.path(), lock.text()));
}

TEST(DirectoryLock, AnInvalidLockFileIsIgnored) {
  const TemporaryFolder folder;
  for (const char* text : {"", "nonsense", "{}", "[1]", "{\"host\": 1, \"process\": \"x\"}"}) {
    folder.write("run.lock", text);
    EXPECT_NO_THROW(DirectoryLock(folder.path())) << text;
  }
}

TEST(DirectoryLock, ReleaseRemovesFoldersThatItCreatedIfTheyAreEmpty) {
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
