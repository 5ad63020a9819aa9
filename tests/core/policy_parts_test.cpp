// SPDX-License-Identifier: Apache-2.0
#include <tessera/fsdp/core/policy_parts.hpp>

#include <gtest/gtest.h>

#include <support/temporary_folder.hpp>

namespace fsdp {
namespace {

struct Cutter {
  std::int64_t width = 3;
  int groups = 1;
  bool reversed = false;

  void visit(PolicyParts& parts) {
    parts.word("cutter");
    parts.number({.member = "groups", .kind = "K"}, groups);
    parts.number({.name = "width", .member = "width", .usual = 3, .least = 0, .most = 9}, width);
    parts.number({.name = "reversed", .member = "reversed", .option = "true"}, reversed);
  }
};

/// Returns the text of what `text` is read as.
std::string read_back(std::string_view text) {
  Cutter cutter;
  PolicyParts parts;
  parts.part(cutter);
  return parts.read(text, "--cut ") ? listed_text(cutter) : "nothing";
}

TEST(PolicyParts, AreWrittenInTheirOrderAndReadInAny) {
  EXPECT_EQ(listed_text(Cutter{}), "cutter:1");
  EXPECT_EQ(listed_text(Cutter{.width = 0, .groups = 2, .reversed = true}), "cutter:2:width=0:reversed");
  EXPECT_EQ(listed_text(Cutter{.width = 0, .groups = 2, .reversed = true}, true), "cutter:K");
  EXPECT_EQ(read_back("cutter:reversed:width=4:2"), "cutter:2:width=4:reversed");
  EXPECT_EQ(read_back("cutter:2:width=3"), "cutter:2");
}

TEST(PolicyParts, ReadNoOtherText) {
  for (const char* bad : {"", "cutter", "2:cutter", "cutter:0", "cutter:2:3", "cutter:2:", "cutter:2:width",
                          "cutter:-2", "cutter:2:width=", "cutter:2:width=4:width=5", "cutter:2:reversed:reversed",
                          "cutter:2:width=x", "cutter:2:width=-1", "cutter:2:reversed=1", "cutters:2"})
    EXPECT_EQ(read_back(bad), "nothing") << bad;
  for (const char* large : {"cutter:2:width=10", "cutter:width=99999999999999999999:2"})
    EXPECT_INPUT_ERROR(read_back(large), message("--cut ", large, ": the number must be at most 9"));
  EXPECT_EQ(read_back("cutter:width=10"), "nothing");
}

}  // namespace
}  // namespace fsdp
