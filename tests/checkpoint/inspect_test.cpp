// SPDX-License-Identifier: Apache-2.0
#include <cmath>
#include <cstdint>

#include <gtest/gtest.h>

#include <tessera/fsdp/checkpoint/inspect.hpp>
#include <tessera/fsdp/checkpoint/side_files.hpp>
#include "support/saved_llama.hpp"
#include "support/temporary_folder.hpp"

namespace fsdp::checkpoint {
namespace {

using test::save_alone;
using test::TemporaryFolder;

TEST(StepsIn, AreTheNewestFirstAndNothingElse) {
  const TemporaryFolder folder;
  save_alone(folder.path(), 7);
  save_alone(folder.path(), 12);
  folder.write("step-00000013.tmp-1/config.json", "{}");
  folder.write("step-00000014", "a file");
  EXPECT_EQ(steps_in(folder.path()),
            (std::vector<std::filesystem::path>{folder.path() / "step-00000012", folder.path() / "step-00000007"}));
  EXPECT_INPUT_ERROR(steps_in(folder.path() / "nowhere"), "nowhere: cannot be listed: No such file");
}

TEST(DamageIn, NamesEachFileThatIsNotWhatWasWritten) {
  const TemporaryFolder folder;
  save_alone(folder.path(), 7);
  const std::filesystem::path step = folder.path() / "step-00000007";
  std::int64_t last = 0, total = 0;
  EXPECT_TRUE(damage_in(step, [&](std::int64_t done, std::int64_t all) { last = done, total = all; }).empty());
  EXPECT_EQ(last, total);
  EXPECT_GT(total, 0);

  std::fstream(step / "optimizer.safetensors", std::ios::in | std::ios::out | std::ios::binary).seekp(-1, std::ios::end)
      << '\x55';
  std::filesystem::resize_file(step / "model.safetensors", 100);
  std::filesystem::remove(step / "trainer.json");
  const std::vector<std::string> damage = damage_in(step);
  ASSERT_EQ(damage.size(), 3u);
  test::expect_parts(damage[0], {"model.safetensors: 100 bytes where manifest.json tells of "});
  test::expect_parts(damage[1], {"optimizer.safetensors: bytes 0 to "});
  test::expect_parts(damage[2], {"trainer.json: cannot be opened: No such file"});

  std::filesystem::remove(step / "manifest.json");
  EXPECT_TRUE(damage_in(step).empty());
}

TEST(NotFiniteIn, NamesTheFirstSuchValueOfEachTensorUpToTen) {
  const TemporaryFolder folder;
  std::vector<NamedShape> tensors = {{"large", {2, piece_elements}}, {"sound", {3}}, {"none", {0}}};
  for (char name = 'a'; name < 'm'; ++name) tensors.push_back({std::string(1, name), {4}});
  SharedFile writer = SharedFile::create(folder.path() / "x.safetensors", plan_file(tensors));
  for (std::size_t i = 3; i < tensors.size(); ++i) writer.write_range(i, 2, std::vector{-INFINITY});
  writer.write_range(0, piece_elements + 5, std::vector{NAN, 1.f, NAN});
  writer.finish();
  const SafetensorsFile file(folder.path() / "x.safetensors");
  std::int64_t last = 0, total = 0;
  const std::vector<std::string> found =
      not_finite_in({&file, 1}, [&](std::int64_t done, std::int64_t all) { last = done, total = all; });
  EXPECT_EQ(total, 4 * (2 * piece_elements + 3 + 12 * 4));
  EXPECT_EQ(last, total);
  ASSERT_EQ(found.size(), 11u);
  EXPECT_TRUE(found[0].ends_with("x.safetensors: a[2] is -inf; no run can use it. Take the weights from elsewhere"))
      << found[0];
  EXPECT_EQ(found[10], "3 more tensors have values that are not finite");
  EXPECT_EQ(not_finite_in({&file, 1}, {}, [](const std::string& name) { return name != "b"; }).size(), 1u);
}

TEST(NotFiniteIn, SkipsTensorsThatAreNoWeightsAndNamesNumbersTooLargeForFloat) {
  const TemporaryFolder folder;
  const std::string header = R"({"i":{"dtype":"I64","shape":[1],"data_offsets":[0,8]},)"
                             R"("d":{"dtype":"F64","shape":[1],"data_offsets":[8,16]}})";
  const std::uint64_t length = header.size();
  std::string content(reinterpret_cast<const char*>(&length), 8);
  const double number = 1e300;
  content += header + std::string(8, '\xff') + std::string(reinterpret_cast<const char*>(&number), 8);
  const SafetensorsFile file(folder.write("x.safetensors", content));
  const std::vector<std::string> found = not_finite_in({&file, 1});
  ASSERT_EQ(found.size(), 1u);
  EXPECT_TRUE(found[0].ends_with("tensor \"d\" holds 1e+300, too large for f32")) << found[0];
}

TEST(SideFiles, AreTheTokenizersAndWhatGenerationIsToldByDefault) {
  const TemporaryFolder folder;
  folder.write("tokenizer.json", "{}");
  folder.write("generation_config.json", "{ }");
  folder.write("config.json", "{}");
  folder.write("notes.txt", "anything");
  EXPECT_EQ(read_side_files(folder.path()), (SideFiles{{"generation_config.json", "{ }"}, {"tokenizer.json", "{}"}}));
}

TEST(SideFiles, ThatCannotBeReadAreLeftOutWithAWarningOrAnError) {
  const TemporaryFolder folder;
  folder.write("tokenizer.json", "{}");
  std::filesystem::create_symlink("nowhere", folder.path() / "merges.txt");
  std::filesystem::create_directory(folder.path() / "vocab.json");
  EXPECT_INPUT_ERROR(read_side_files(folder.path()), "vocab.json: not a regular file but a folder");
  std::vector<std::string> warnings;
  EXPECT_EQ(read_side_files(folder.path(), [&](const std::string& text) { warnings.push_back(text); }),
            (SideFiles{{"tokenizer.json", "{}"}}));
  ASSERT_EQ(warnings.size(), 2u);
  test::expect_parts(warnings[1], {"download the folder again; it is left out of checkpoints"});
}

TEST(SideFiles, JsonThatIsEmptyIsRefused) {
  const TemporaryFolder folder;
  folder.write("chat_template.jinja", "");
  EXPECT_EQ(read_side_files(folder.path()), (SideFiles{{"chat_template.jinja", ""}}));
  folder.write("tokenizer.json", " \n");
  EXPECT_INPUT_ERROR(read_side_files(folder.path()), "tokenizer.json: is empty; download the file again");
}

TEST(SideFiles, OfACheckpointAreInItsManifest) {
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
