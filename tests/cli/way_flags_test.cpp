// SPDX-License-Identifier: Apache-2.0
#include "src/program/cli/fit_space.hpp"

#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include <gtest/gtest.h>

#include "src/fsdp/core/split.hpp"

namespace fsdp::cli {
namespace {

/// Parses `tessera train` with these flags.
Train parsed(std::string_view flags) {
  std::vector<std::string> texts = {"tessera", "train"};
  for (const std::string_view word : split_at(flags, ' ')) texts.emplace_back(word);
  std::vector<const char*> words;
  for (const std::string& text : texts) words.push_back(text.c_str());
  return *std::get<Bound<Train>>(parse(static_cast<int>(words.size()), words.data()));
}

TEST(WayFlags, AreTheCommandLineOfAConfigurationWithoutDefaults) {
  for (const std::string flags :
       {"--sharding fsdp2", "--sharding zero1 --recompute",
        "--sharding hybrid:2:deferred --layout flat --sequence ulysses:2 --grad-accum 4 --recompute --offload "
        "optimizer,inputs:0.5 --tiling tokens:64"}) {
    EXPECT_EQ(command_line(flags_of_way(parsed(flags))), flags);
    EXPECT_EQ(command_line(flags_of_way(parsed(flags + " --batch-size 16"))), flags);
  }
}

}  // namespace
}  // namespace fsdp::cli
