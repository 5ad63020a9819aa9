// SPDX-License-Identifier: Apache-2.0
#include <tessera/trainer/flags/flag_values.hpp>

#include <string>

#include <gtest/gtest.h>

#include "support/temporary_folder.hpp"

namespace fsdp::train {
namespace {

OptimizerGroup group_of(const std::string& text) {
  OptimizerGroup group;
  fsdp::from_text("group", text, group);
  return group;
}

TEST(GroupFlag, RoundTrips) {
  const OptimizerGroup all{.parameters = "model.layers.?.*",
                           .units = "block*",
                           .role = Role::matrix,
                           .lr = 0.1 + 0.2,
                           .weight_decay = 0,
                           .clip = 1e30};
  for (const OptimizerGroup& group :
       {all, OptimizerGroup{.parameters = "*.bias", .weight_decay = 0}, OptimizerGroup{.role = Role::table, .clip = 0},
        OptimizerGroup{.parameters = "frozen", .frozen = true}}) {
    EXPECT_EQ(group_of(to_text(group)), group) << to_text(group);
    EXPECT_EQ(to_text(group), selection_text(group) + " " + values_text(group));
  }
  EXPECT_EQ(group_of("  role=vector   lr=2 "), (OptimizerGroup{.role = Role::vector, .lr = 2}));
  EXPECT_EQ(to_text(group_of("lr=2 role=vector weight-decay=0.5")), "* role=vector lr=2 weight-decay=0.5");
}

TEST(GroupFlag, IsRecordedBySelector) {
  const std::string text = "*.b weight-decay=0\n* units=a role=table lr=0.5 clip=1\nc frozen";
  EXPECT_EQ(recorded_groups(text),
            (std::map<std::string, std::string>{
                {"*.b", "weight-decay=0"}, {"* units=a role=table", "lr=0.5 clip=1"}, {"c", "frozen"}}));
  EXPECT_TRUE(recorded_groups("").empty());
}

TEST(GroupFlag, ReportsInvalidGroups) {
  const auto refuse = [](const std::string& text, const std::string& what) {
    EXPECT_INPUT_ERROR(group_of(text), what);
  };
  refuse("*.b rl=2", "--group '*.b rl=2': 'rl' is not known; did you mean 'lr'?");
  refuse("*.b lr=fast", "--group '*.b lr=fast': lr is 'fast', which is not a number");
  refuse("*.b lr=", "--group '*.b lr=': lr has no value; write lr=VALUE");
  refuse("*.b lr", "lr has no value; write lr=VALUE");
  refuse("*.b frozen=yes", "frozen has no value; write it alone");
  refuse("*.b lr=1 lr=2", "lr is there twice; give it once");
  refuse("role=matrices lr=1", "role matrices is not known; did you mean 'matrix'? Known: matrix, table, vector");
  refuse("*.b *.c lr=1", "'*.c' is not known");
  refuse("*.b lr=-1", "group '*.b': lr is -1; give at least 0 and at most 1000");
  refuse("*.b lr=nan", "group '*.b': lr is nan");
  refuse("*.b", "--group '*.b': sets nothing; give it lr, weight-decay, clip or frozen in the same text");
}

}  // namespace
}  // namespace fsdp::train
