// SPDX-License-Identifier: Apache-2.0
// A step that is cut into pieces has the same bits on any number of ranks: losses, norms, gradients, weights, states.
#include <gtest/gtest.h>

#include <support/small_llama.hpp>

namespace fsdp::test {
namespace {

using Names = std::vector<std::string>;

/// Steps of 11 windows in so many pieces, which are uneven, on so many ranks. A piece without a window has no targets.
RunOptions pieces_options(int pieces, int ranks) {
  RunOptions options = uneven_options(ranks, sharding::micro_batches_of(pieces, ranks));
  options.most_sequences = most_dealt(11, pieces, 1);
  options.batch = deal(some_windows(11, 7, options.config.vocab_size));
  options.steps = 3;
  options.clip = 1;
  options.nan_in_padding = true;
  return options;
}

std::string in_pieces(std::string_view strategy, int pieces, std::string_view stack = "/run-time") {
  return message(strategy, ":pieces=", pieces, stack);
}

void expect_same_bits(const RunResults& found, const RunResults& expected) {
  EXPECT_EQ(found.losses, expected.losses);
  EXPECT_EQ(found.norms, expected.norms);
  EXPECT_EQ(tensors_that_differ(found.gradients, expected.gradients), Names{});
  EXPECT_EQ(tensors_that_differ(found.weights, expected.weights), Names{});
  EXPECT_EQ(tensors_that_differ(found.states, expected.states), Names{});
}

TEST(SameBits, OnAnyNumberOfRanksUnderEveryStrategyOfTheFamily) {
  for (const int pieces : sampled({12, 8})) {
    const RunResults expected = run(in_pieces("fsdp2", pieces), pieces_options(pieces, pieces));
    EXPECT_LT(expected.losses.back(), expected.losses.front());
    for (const int ranks : sampled({1, 2, 3, 5, 6, 8}))
      for (const std::string_view strategy :
           sampled<std::string_view>({"fsdp2", "zero2", "zero3:persist=20:prefetch=2"})) {
        if (pieces == 8 && strategy == "zero2") continue;  // tests/long.sh same_bits has all
        SCOPED_TRACE(message(strategy, ", ", pieces, " pieces, ", ranks, " ranks"));
        const RunResults found = run(in_pieces(strategy, pieces), pieces_options(pieces, ranks));
        expect_same_bits(found, expected);
        for (const Memory& memory : found.memory) {
          for (std::size_t kind = 0; kind < memory.used.size(); ++kind)
            if (kind == static_cast<std::size_t>(device::MemoryKind::activations))
              EXPECT_LE(memory.used[kind], memory.planned[kind]) << "a rank may have none of the larger pieces";
            else
              EXPECT_EQ(memory.used[kind], memory.planned[kind]) << "kind " << kind;
          EXPECT_EQ(memory.allocations_at_end, memory.allocations_after_first_step);
        }
      }
  }
}

/// Sizes where tensors of a block are adjacent as they are packed and not at multiples of 64 elements, or the reverse;
/// and a threshold between the tensors of one matmul.
TEST(SameBits, WhateverTheLayoutAndThePersistentTensorsAre) {
  for (const std::int64_t hidden : {24, 64}) {
    const auto options_of = [&](int ranks) {
      RunOptions options = pieces_options(3, ranks);
      options.config.hidden_size = hidden;
      options.config.head_dim = hidden / 4;
      options.config.intermediate_size = hidden == 24 ? 1 : 96;
      options.steps = 2;
      return options;
    };
    const RunResults expected = run(in_pieces("fsdp2", 3), options_of(1));
    const std::string between = message("zero3:persist=", hidden * hidden / 4);  // of k and v, not of q
    for (const auto& [strategy, stack] : std::vector<std::pair<std::string, std::string>>{
             {"fsdp2", "/layout=rows/run-time"}, {"zero3", "/layout=owned/run-time"}, {between, "/run-time"}})
      for (const int ranks : sampled({1, 2})) {
        SCOPED_TRACE(message(strategy, stack, ", ", ranks, " ranks, width ", hidden));
        expect_same_bits(run(in_pieces(strategy, 3, stack), options_of(ranks)), expected);
      }
  }
}

TEST(SameBits, RecomputedTiledAndWithTiedWeights) {
  const auto options_of = [](int ranks) {
    RunOptions options = pieces_options(6, ranks);
    options.units.recompute = true;
    options.tiling = tiling::RunTimeTiling::tokens(5);
    options.config.tied = true;
    return options;
  };
  const RunResults expected = run(in_pieces("fsdp2", 6), options_of(6));
  for (const int ranks : sampled({1, 4})) {
    SCOPED_TRACE(ranks);
    expect_same_bits(run(in_pieces("zero3", 6), options_of(ranks)), expected);
  }
}

TEST(SameBits, DifferWithoutPieces) {
  const RunResults alone = run("fsdp2/run-time", uneven_options(1, 4)),
                   two = run("fsdp2/run-time", uneven_options(2, 2));
  EXPECT_NE(alone.losses, two.losses);
  EXPECT_NE(tensors_that_differ(alone.weights, two.weights), Names{});
}

}  // namespace
}  // namespace fsdp::test
