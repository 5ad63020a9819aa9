// SPDX-License-Identifier: Apache-2.0
#include <fsdp/checkpoint/inspect.hpp>

#include <gtest/gtest.h>

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
  EXPECT_NE(damage[0].find("model.safetensors: 100 bytes where manifest.json tells of "), std::string::npos);
  EXPECT_NE(damage[1].find("optimizer.safetensors: bytes 0 to "), std::string::npos);
  EXPECT_NE(damage[2].find("trainer.json: cannot be opened: No such file"), std::string::npos);

  std::filesystem::remove(step / "manifest.json");
  EXPECT_TRUE(damage_in(step).empty());
}

}  // namespace
}  // namespace fsdp::checkpoint
