// SPDX-License-Identifier: Apache-2.0
#include <cmath>
#include <cstdint>

#include <gtest/gtest.h>

#include <tessera/fsdp/checkpoint/inspect.hpp>
#include "support/saved_llama.hpp"
#include "support/temporary_folder.hpp"

namespace fsdp::checkpoint {
namespace {

using test::save_alone;
using test::SavedFolder;
using test::TemporaryFolder;

TEST(StepsIn, ReturnsCheckpointFoldersNewestFirst) {
  const SavedFolder folder;
  save_alone(folder.path(), 12);
  folder.write("step-00000013.tmp-1/config.json", "{}");
  folder.write("step-00000014", "a file");
  EXPECT_EQ(steps_in(folder.path()),
            (std::vector<std::filesystem::path>{folder.path() / "step-00000012", folder.step()}));
  EXPECT_INPUT_ERROR(steps_in(folder.path() / "nowhere"), "nowhere: cannot be listed: No such file");
}

TEST(DamageIn, ReportsEachFileWhoseContentChanged) {
  const SavedFolder folder;
  const std::filesystem::path step = folder.step();
  std::int64_t last = 0, total = 0;
  EXPECT_TRUE(damaged_files(step, [&](std::int64_t done, std::int64_t all) { last = done, total = all; }).empty());
  EXPECT_EQ(last, total);
  EXPECT_GT(total, 0);

  std::fstream(step / "optimizer.safetensors", std::ios::in | std::ios::out | std::ios::binary).seekp(-1, std::ios::end)
      << '\x55';
  std::filesystem::resize_file(step / "model.safetensors", 100);
  std::filesystem::remove(step / "trainer.json");
  const std::vector<std::string> damage = damaged_files(step);
  ASSERT_EQ(damage.size(), 3u);
  test::expect_parts(damage[0], {"model.safetensors: 100 bytes where manifest.json tells of "});
  test::expect_parts(damage[1], {"optimizer.safetensors: bytes 0 to "});
  test::expect_parts(damage[2], {"trainer.json: cannot be opened: No such file"});

  std::filesystem::remove(step / "manifest.json");
  EXPECT_TRUE(damaged_files(step).empty());
}

TEST(NotFiniteIn, ReportsTheFirstNonFiniteValueOfUpToTenTensors) {
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

TEST(NotFiniteIn, SkipsNonFloatTensorsAndReportsOverflowToFloat) {
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

}  // namespace
}  // namespace fsdp::checkpoint
