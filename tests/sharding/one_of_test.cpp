// SPDX-License-Identifier: Apache-2.0
// Blocks of two kinds: a Llama that is split into attention and MLP blocks equals the Llama, which was verified with
// float64 and PyTorch.
#include <tessera/fsdp/nn/one_of.hpp>

#include <gtest/gtest.h>

#include <support/small_llama.hpp>

namespace fsdp::test {
namespace {

class AlternatingBlocks : public ::testing::TestWithParam<tiling::RunTimeTiling> {};

TEST_P(AlternatingBlocks, MatchTheModelThatTheyWereSplitFrom) {
  for (const int micro_batches : {1, 2}) {
    RunOptions options = with_steps(3, uneven_options(2, micro_batches));
    options.tiling = GetParam();
    const RunResults whole = run("fsdp2", options);
    const RunResults cut = run("alternating", options);

    expect_same_bits(cut, whole);
    EXPECT_EQ(cut.initial, whole.initial);
    EXPECT_LT(cut.losses.back(), cut.losses.front());
    for (const Memory& memory : cut.memory) {
      EXPECT_EQ(memory.used, memory.planned);
      EXPECT_EQ(memory.used_activations, memory.planned_activations);
    }
  }
}

INSTANTIATE_TEST_SUITE_P(UntiledAndTiled, AlternatingBlocks,
                         ::testing::Values(tiling::RunTimeTiling(tiling::Untiled{}), tiling::RunTimeTiling::tokens(5)));

}  // namespace
}  // namespace fsdp::test
