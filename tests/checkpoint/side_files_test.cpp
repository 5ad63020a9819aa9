// SPDX-License-Identifier: Apache-2.0
#include <tessera/fsdp/checkpoint/weight_files.hpp>

#include <gtest/gtest.h>

#include "support/saved_llama.hpp"
#include "support/temporary_folder.hpp"

namespace fsdp::checkpoint {
namespace {

using test::TemporaryFolder;

TEST(SideFiles, AreTheTokenizerAndGenerationConfigFiles) {
  const TemporaryFolder folder;
  folder.write("tokenizer.json", "{}");
  folder.write("generation_config.json", "{ }");
  folder.write("config.json", "{}");
  folder.write("notes.txt", "anything");
  EXPECT_EQ(read_side_files(folder.path()), (SideFiles{{"generation_config.json", "{ }"}, {"tokenizer.json", "{}"}}));
}

TEST(SideFiles, UnreadableFilesAreSkippedWithAWarningOrAreAnError) {
  const TemporaryFolder folder;
  folder.write("tokenizer.json", "{}");
  std::filesystem::create_symlink("nowhere", folder.path() / "merges.txt");
  std::filesystem::create_directory(folder.path() / "vocab.json");
  EXPECT_INPUT_ERROR(read_side_files(folder.path()), "vocab.json: not a regular file but a folder");
  std::vector<std::string> warnings;
  EXPECT_EQ(read_side_files(folder.path(), test::append_to(warnings)), (SideFiles{{"tokenizer.json", "{}"}}));
  ASSERT_EQ(warnings.size(), 2u);
  test::expect_parts(warnings[1], {"download the folder again; it is left out of checkpoints"});
}

TEST(SideFiles, EmptyJsonFilesAreRefused) {
  const TemporaryFolder folder;
  folder.write("chat_template.jinja", "");
  EXPECT_EQ(read_side_files(folder.path()), (SideFiles{{"chat_template.jinja", ""}}));
  folder.write("tokenizer.json", " \n");
  EXPECT_INPUT_ERROR(read_side_files(folder.path()), "tokenizer.json: is empty; download the file again");
}

TEST(SideFiles, AreListedInTheManifestOfACheckpoint) {
  const TemporaryFolder folder;
  Save checkpoint(folder.path(), 7, 1, test::listing_of(test::small_model), test::states_for(test::small_model),
                  {{"tokenizer.json", "{}"}});
  comm::Self<> ranks;
  save(checkpoint, ranks, test::some_state, [](Save& s) { test::write_share(s, 0, 1); });
  const std::filesystem::path step = checkpoint.path();
  folder.write("step-00000007/merges.txt", "added by hand");
  EXPECT_EQ(read_side_files(step), (SideFiles{{"merges.txt", "added by hand"}, {"tokenizer.json", "{}"}}));
  EXPECT_EQ(Checkpoint::open(step, test::read_small).state(), test::some_state);
  folder.write("step-00000007/tokenizer.json", "[]");
  EXPECT_INPUT_ERROR(read_side_files(step), "tokenizer.json: bytes 0 to 1 are not those that were written");
  std::filesystem::remove(step / "tokenizer.json");
  EXPECT_INPUT_ERROR(read_side_files(step), "tokenizer.json: no such file");
}

}  // namespace
}  // namespace fsdp::checkpoint
