// SPDX-License-Identifier: Apache-2.0
#include "src/trainer/data/files/input_files.hpp"

#include <sys/stat.h>

#include <string>
#include <vector>

#include <gtest/gtest.h>

#include "support/temporary_folder.hpp"

namespace fsdp::data::input_files_test {
namespace {

using test::TemporaryFolder;

struct Folder : TemporaryFolder {
  InputFiles inputs(const std::string& below = "") const { return input_files(std::vector{path() / below}); }

  std::string files(const InputFiles& of) const {
    std::string names;
    for (const InputFile& file : of.files) names += file.path.lexically_relative(path()).string() + " ";
    return names;
  }
};

TEST(InputFiles, HiddenNamesAndLeftoversOfEditorsAreLeftOutOfFolders) {
  const Folder folder;
  for (const char* name : {"data/.git/config", "data/.git/HEAD", "data/.DS_Store", "data/a.txt", "data/b.txt~",
                           "data/#c.txt#", "data/d.swp", "data/sub/.e.txt", "data/sub/f.tmp", "data/sub/g.TXT",
                           "data/h.jsonl.bak", "data/i.txt.orig", "data/run.lock"})
    folder.write(name, "x");
  const InputFiles inputs = folder.inputs("data");
  EXPECT_EQ(folder.files(inputs), "data/a.txt data/sub/g.TXT ");
  const std::string data = (folder.path() / "data").string();
  EXPECT_EQ(inputs.left_out.text(), "left out: leftovers of editors 6 (" + data + "/#c.txt#, ...), hidden 3 (" + data +
                                        "/.DS_Store, ...), locks of runs 1 (" + data + "/run.lock)");
  EXPECT_EQ(inputs.left_out.binary(), 0);
}

TEST(InputFiles, HiddenNamesThatAreGivenAreRead) {
  const Folder folder;
  folder.write(".cache/.hidden", "x");
  folder.write(".cache/a.txt", "x");
  EXPECT_EQ(folder.files(folder.inputs(".cache")), ".cache/a.txt ");
  EXPECT_EQ(folder.files(folder.inputs(".cache/.hidden")), ".cache/.hidden ");
}

TEST(InputFiles, LinksAreFollowedAndEachFolderIsReadOnce) {
  const Folder folder;
  folder.write("blobs/1", "x");
  folder.write("data/a/b.txt", "x");
  std::filesystem::create_symlink("../../blobs/1", folder.path() / "data/a/c.txt");
  std::filesystem::create_directory_symlink("..", folder.path() / "data/a/loop");
  std::filesystem::create_directory_symlink("../blobs", folder.path() / "data/elsewhere");
  std::filesystem::create_symlink("nowhere", folder.path() / "data/broken");
  std::filesystem::create_symlink("self", folder.path() / "data/self");
  ASSERT_EQ(::mkfifo((folder.path() / "data/pipe").c_str(), 0600), 0);
  const InputFiles inputs = folder.inputs("data");
  EXPECT_EQ(folder.files(inputs), "data/a/b.txt data/a/c.txt data/elsewhere/1 ");
  const std::string text = inputs.left_out.text();
  for (const char* part :
       {"links to nothing 2 (", "neither files nor folders 1 (", "links to folders that are read already 1 ("})
    EXPECT_NE(text.find(part), std::string::npos) << text;
}

}  // namespace
}  // namespace fsdp::data::input_files_test
