// SPDX-License-Identifier: Apache-2.0
#include <tessera/fsdp/core/policy_text.hpp>

#include <utility>

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
    parts.number({.kind = "K"}, groups);
    parts.number({.name = "width", .usual = 3, .least = 0, .most = 9}, width);
    parts.number({.name = "reversed", .is_option = true}, reversed);
  }
};

/// Parses `text` as a policy and returns the text of the result.
std::string read_back(std::string_view text) {
  Cutter cutter;
  PolicyParts parts;
  parts.part(cutter);
  return parts.read(text, "--cut ") ? listed_text(cutter) : "nothing";
}

TEST(PolicyParts, AreWrittenInDeclarationOrderAndParsedInAnyOrder) {
  EXPECT_EQ(listed_text(Cutter{}), "cutter:1");
  EXPECT_EQ(listed_text(Cutter{.width = 0, .groups = 2, .reversed = true}), "cutter:2:width=0:reversed");
  EXPECT_EQ(listed_text(Cutter{.width = 0, .groups = 2, .reversed = true}, true), "cutter:K");
  EXPECT_EQ(read_back("cutter:reversed:width=4:2"), "cutter:2:width=4:reversed");
  EXPECT_EQ(read_back("cutter:2:width=3"), "cutter:2");
}

TEST(PolicyParts, RefuseMalformedText) {
  for (const char* bad : {"", "cutter", "2:cutter", "cutter:0", "cutter:2:3", "cutter:2:", "cutter:2:width",
                          "cutter:-2", "cutter:2:width=", "cutter:2:width=4:width=5", "cutter:2:reversed:reversed",
                          "cutter:2:width=x", "cutter:2:width=-1", "cutter:2:reversed=1", "cutters:2"})
    EXPECT_EQ(read_back(bad), "nothing") << bad;
  for (const char* large : {"cutter:2:width=10", "cutter:width=99999999999999999999:2"})
    EXPECT_INPUT_ERROR(read_back(large), message("--cut ", large, ": the number must be at most 9"));
  EXPECT_EQ(read_back("cutter:width=10"), "nothing");
}

struct Keeper {
  std::int64_t room = 0;

  void visit(PolicyParts& parts) {
    parts.word("keeper");
    parts.number({.name = "room", .most = 1 << 30, .is_bytes = true}, room);
  }
};

TEST(PolicyParts, ParseNumbersOfBytes) {
  Keeper keeper;
  PolicyParts parts;
  parts.part(keeper);
  for (const auto& [text, said] :
       {std::pair("keeper:room=4096", "keeper:room=4096"), std::pair("keeper:room=4KiB", "keeper:room=4096"),
        std::pair("keeper:room=1GiB", "keeper:room=1073741824"), std::pair("keeper:room=auto", "keeper:room=auto")}) {
    EXPECT_TRUE(parts.read(text, "--keep ")) << text;
    EXPECT_EQ(listed_text(keeper), said);
  }
  EXPECT_EQ(keeper.room, memory_left);
  for (const char* bad : {"keeper:room=0", "keeper:room=4KB", "keeper:room=", "keeper:room=-1", "keeper:room=KiB"})
    EXPECT_FALSE(parts.read(bad, "--keep ")) << bad;
  for (const char* large : {"keeper:room=2GiB", "keeper:room=9999999999TiB"})
    EXPECT_INPUT_ERROR(parts.read(large, "--keep "), "the number must be at most 1073741824");
  parts.set("room", 7);
  EXPECT_EQ(listed_text(keeper), "keeper:room=7");
}

}  // namespace
}  // namespace fsdp
