// SPDX-License-Identifier: Apache-2.0
// Checkpoints of sharded runs: written by some ranks, read by others.
#include <gtest/gtest.h>

#include <support/small_llama.hpp>
#include <support/temporary_folder.hpp>

namespace fsdp::test {
namespace {

TEST(Resume, ReadsBitIdenticalValuesWrittenByAnyStrategy) {
  for (const auto writer : {"fsdp2", "zero3", "replicated"}) {
    const TemporaryFolder folder;
    const RunResults saved = run(writer, saving(3, folder.path()));
    for (const auto& [reader, ranks] : {std::pair("zero3", 2), std::pair("fsdp2", 4), std::pair("replicated", 2)}) {
      SCOPED_TRACE(message(writer, " to ", reader));
      const RunResults read = run(reader, resuming(ranks, 5, folder.path()));
      EXPECT_TRUE(read.losses.empty());
      expect_same_tensors(read.weights, saved.weights);
      expect_same_tensors(read.states, saved.states);
    }
  }
}

TEST(Resume, IsBitIdenticalOnTheSameRanks) {
  for (const auto stack : {"fsdp2", "zero3", "replicated", "fsdp2/bf16"}) {
    const TemporaryFolder folder;
    run(stack, saving(3, folder.path()));
    expect_resumed(run(stack, resuming(3, 10, folder.path())), run(stack, uneven_options(3)), stack);
  }
}

TEST(Resume, MatchesApproximatelyOnOtherRanks) {
  const TemporaryFolder folder;
  run("fsdp2", saving(3, folder.path()));
  const RunResults resumed = run("zero3", resuming(2, 10, folder.path()));
  const RunResults whole = run("fsdp2", uneven_options(3));
  EXPECT_LE(largest_relative(resumed.losses, std::vector<double>(whole.losses.begin() + 5, whole.losses.end())), 1e-5);
  EXPECT_LE(largest_relative(resumed.weights, whole.weights), 1e-4);
}

}  // namespace
}  // namespace fsdp::test
