// SPDX-License-Identifier: Apache-2.0
#include <tessera/fsdp/core/terminal_text.hpp>

#include <gtest/gtest.h>

namespace fsdp {
namespace {

TEST(EditDistance, CountsInsertionsDeletionsReplacementsAndSwaps) {
  EXPECT_EQ(edit_distance("small", "small"), 0u);
  EXPECT_EQ(edit_distance("smal", "small"), 1u);
  EXPECT_EQ(edit_distance("smalll", "small"), 1u);
  EXPECT_EQ(edit_distance("smoll", "small"), 1u);
  EXPECT_EQ(edit_distance("samll", "small"), 1u);
  EXPECT_EQ(edit_distance("", "tiny"), 4u);
  EXPECT_EQ(edit_distance("kitten", "sitting"), 3u);
}

TEST(Nearest, ReturnsTheFirstOfTheClosestWords) {
  const std::vector<std::string> words = {"zero1", "zero2", "fsdp2"};
  EXPECT_EQ(nearest("fsdp", words), "fsdp2");
  EXPECT_EQ(nearest("zero3", words), "zero1");
  EXPECT_EQ(nearest("x", {}), "");
  EXPECT_EQ(nearest("lr", std::vector<std::string>{"rl"}), "rl");
  EXPECT_EQ(suggestion("fdsp2", words), "did you mean 'fsdp2'? Known: zero1, zero2, fsdp2");
}

TEST(Nearest, IsEmptyIfNoWordIsCloseOrSharesAPrefix) {
  const std::vector<std::string> words = {"generate", "sequence", "eps", "batch-size", "out", "learn"};
  for (const char* const far : {"learning-rate", "finetune", "nonsense", "gpus", "", "ba"})
    EXPECT_EQ(nearest(far, words), "") << far;
  EXPECT_EQ(nearest("batch", words), "batch-size");
  EXPECT_EQ(nearest("output", words), "out");
  EXPECT_EQ(suggestion("finetune", words), "known: generate, sequence, eps, batch-size, out, learn");
  EXPECT_EQ(nearest("learn_from", words), "learn");
  EXPECT_EQ(nearest("sequecne*", words), "sequence");
}

}  // namespace
}  // namespace fsdp
