// SPDX-License-Identifier: Apache-2.0
#include <tessera/trainer/run/output_files.hpp>

#include <gtest/gtest.h>
#include <sys/wait.h>
#include <unistd.h>

#include <array>
#include <cstdint>
#include <string>
#include <vector>

#include "support/temporary_folder.hpp"

namespace fsdp::train {
namespace {

/// The error message of `require_writable` for a user who is not root; empty without an error.
std::string said_to_nobody(const std::filesystem::path& path) {
  std::array<int, 2> pipe{};
  if (::pipe(pipe.data()) != 0) return "no pipe";
  const pid_t child = ::fork();
  if (child == 0) {
    std::string said;
    if (::getuid() == 0 && ::setresuid(65534, 65534, 65534) != 0) said = "cannot become nobody";
    try {
      require_writable(path);
    } catch (const InputError& error) {
      said += error.what();
    }
    ::_exit(::write(pipe[1], said.data(), said.size()) == std::ssize(said) ? 0 : 1);
  }
  ::close(pipe[1]);
  std::array<char, 1000> said{};
  const ssize_t bytes = ::read(pipe[0], said.data(), said.size());
  ::close(pipe[0]);
  ::waitpid(child, nullptr, 0);
  return {said.data(), static_cast<std::size_t>(std::max<ssize_t>(bytes, 0))};
}

TEST(RequireWritable, ReportsWhyAFolderCannotBeWritten) {
  const test::TemporaryFolder folder;
  using std::filesystem::perms;
  std::filesystem::permissions(folder.path(), perms::owner_all | perms::group_exec | perms::others_exec);
  const std::filesystem::path locked = folder.path() / "locked", open = folder.path() / "open";
  std::filesystem::create_directory(locked);
  std::filesystem::create_directory(open);
  std::filesystem::permissions(locked, perms::owner_exec | perms::others_exec);
  std::filesystem::permissions(open, perms::all);
  EXPECT_EQ(said_to_nobody(open / "below"), "");
  EXPECT_EQ(said_to_nobody(locked / "below"), "--checkpoint-dir " + (locked / "below").string() +
                                                  ": cannot be written: " + locked.string() + ": Permission denied");
  folder.write("file", "");
  EXPECT_INPUT_ERROR(require_writable((folder.path() / "file" / "below").string()), "Not a directory");
}

TEST(RequireRoom, ReportsTheFlagsToChange) {
  const test::TemporaryFolder folder;
  TrainOptions options;
  options.checkpoint_dir = folder.path().string();
  options.steps = 1'000'000'000;
  options.checkpoint_every = 1;
  std::vector<std::string> warnings;
  const auto asked = [&](std::int64_t rows) {
    require_room(options, {.parameters = {{"w", {rows, 1'000'000}}}}, {.of = {{"w", {}}}},
                 [&](const std::string& text) { warnings.push_back(text); });
  };
  const std::string begin = "--checkpoint-dir " + folder.path().string() + ": ";
  EXPECT_INPUT_ERROR(asked(1'000'000'000), begin + "a checkpoint takes ");
  EXPECT_TRUE(warnings.empty());
  asked(1);
  ASSERT_EQ(warnings.size(), 1u);
  EXPECT_TRUE(warnings[0].starts_with(begin + "1000000000 checkpoints of ")) << warnings[0];
  EXPECT_TRUE(warnings[0].ends_with(" left; --keep N keeps the newest N")) << warnings[0];
}

}  // namespace
}  // namespace fsdp::train
