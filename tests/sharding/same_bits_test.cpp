// SPDX-License-Identifier: Apache-2.0
// A step that is cut into pieces is bit-identical on any number of ranks: losses, norms, gradients, weights, states.
#include <algorithm>
#include <random>

#include <gtest/gtest.h>
#include <range/v3/view/zip.hpp>

#include <support/errors.hpp>
#include <support/small_llama.hpp>
#include <tessera/fsdp/core/error.hpp>

namespace fsdp::test {
namespace {

/// Norms are also bit-identical, since pieces are summed in a fixed order.
void expect_same_step(const RunResults& found, const RunResults& expected) {
  expect_same_bits(found, expected);
  EXPECT_EQ(found.norms, expected.norms);
}

using Names = std::vector<std::string>;

/// Steps of 11 windows in `pieces` uneven pieces on `ranks` ranks. A piece without a window has no targets.
RunOptions pieces_options(int pieces, int ranks) {
  RunOptions options = with_steps(3, uneven_options(ranks, sharding::micro_batches_of(pieces, ranks)));
  options.most_sequences = most_dealt(11, pieces, 1);
  options.batch = deal(some_windows(11, 7, options.config.vocab_size));
  options.clip = 1;
  options.nan_in_padding = true;
  return options;
}

std::string in_pieces(std::string_view strategy, int pieces, std::string_view stack = "/run-time") {
  return message(strategy, ":pieces=", pieces, stack);
}

TEST(SameBits, OnAnyNumberOfRanksUnderEveryStrategyWithPieces) {
  for (const int pieces : sampled({12, 8})) {
    const RunResults expected = run(in_pieces("fsdp2", pieces), pieces_options(pieces, pieces));
    EXPECT_LT(expected.losses.back(), expected.losses.front());
    for (const int ranks : sampled({1, 2, 3, 5, 6, 8}))
      for (const std::string_view strategy :
           sampled<std::string_view>({"fsdp2", "zero2", "zero3:persist=20:prefetch=2"})) {
        if (pieces == 8 && strategy == "zero2") continue;  // tests/long.sh same_bits runs all cases
        SCOPED_TRACE(message(strategy, ", ", pieces, " pieces, ", ranks, " ranks"));
        const RunResults found = run(in_pieces(strategy, pieces), pieces_options(pieces, ranks));
        expect_same_step(found, expected);
        for (const Memory& memory : found.memory) {
          constexpr auto activations = static_cast<std::size_t>(device::MemoryKind::activations);
          device::BytesByKind used = memory.used;
          EXPECT_LE(used[activations], memory.planned[activations]) << "a rank may have none of the larger pieces";
          used[activations] = memory.planned[activations];
          EXPECT_EQ(used, memory.planned);
          EXPECT_EQ(memory.allocations_at_end, memory.allocations_after_first_step);
        }
      }
  }
}

/// Sizes at which tensors of a block are adjacent when packed but not when aligned to 64 elements, or the reverse, and
/// a persistence threshold between the sizes of tensors of one matmul.
TEST(SameBits, ForAnyLayoutAndPersistentTensors) {
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
    const std::string between = message("zero3:persist=", hidden * hidden / 4);  // persistent: k and v, but not q
    for (const auto& [strategy, stack] : std::vector<std::pair<std::string, std::string>>{
             {"fsdp2", "/layout=blocks/run-time"}, {"zero3", "/layout=owned/run-time"}, {between, "/run-time"}})
      for (const int ranks : sampled({1, 2})) {
        SCOPED_TRACE(message(strategy, stack, ", ", ranks, " ranks, width ", hidden));
        expect_same_step(run(in_pieces(strategy, 3, stack), options_of(ranks)), expected);
      }
  }
}

TEST(SameBits, WithRecomputationTilingAndTiedWeights) {
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
    expect_same_step(run(in_pieces("zero3", 6), options_of(ranks)), expected);
  }
}

TEST(SameBits, ResultsDependOnTheNumberOfRanksWithoutPieces) {
  const RunResults alone = run("fsdp2/run-time", uneven_options(1, 4)),
                   two = run("fsdp2/run-time", uneven_options(2, 2));
  EXPECT_NE(alone.losses, two.losses);
  EXPECT_NE(tensors_that_differ(alone.weights, two.weights), Names{});
}

// Digests are the same on any number of ranks and identify where two runs diverge; a verification reports the rank with
// a computation or memory error.

constexpr int pieces = 4;

RunOptions options_on(int ranks) {
  RunOptions options = with_steps(2, uneven_options(ranks, sharding::micro_batches_of(pieces, ranks)));
  options.most_sequences = most_dealt(12, pieces, 1);
  options.collects = false;
  return options;
}

std::string stack(std::string_view strategy) { return message(strategy, ":pieces=", pieces, "/run-time"); }

RunResults digested(std::string_view strategy, RunOptions options) {
  options.digests = true;
  return run(stack(strategy), options);
}

TEST(Digests, AreTheSameOnAnyNumberOfRanks) {
  const RunResults expected = digested("fsdp2", options_on(4));
  ASSERT_EQ(expected.digests.size(), 2u);
  // 4 pieces with 4 forward and 4 backward streams each, then the gradients and weights of 5 units.
  EXPECT_EQ(expected.digests.front().size(), 4u * 8 + 2 * 5);
  for (const int ranks : {1, 2, 3})
    for (const std::string_view strategy : {"fsdp2", "zero3"})
      EXPECT_EQ(digested(strategy, options_on(ranks)).digests, expected.digests) << ranks << " ranks, " << strategy;
}

TEST(Digests, DoNotDependOnHowParametersAreGrouped) {
  const RunResults expected = digested("fsdp2", options_on(2));
  RunOptions merged = options_on(2);
  merged.units.blocks_per_unit = 2;
  EXPECT_EQ(digested("fsdp2", merged).digests, expected.digests);
  merged.units.merge_below = 1'000'000;
  EXPECT_EQ(digested("fsdp2", merged).digests, expected.digests);
  EXPECT_EQ(digested("zero3:persist=32", options_on(2)).digests, expected.digests);
}

/// The first digest that differs between two runs.
StepDigest first_that_differs(const RunResults& a, const RunResults& b) {
  for (const auto& [mine, other] : ranges::views::zip(a.digests, b.digests))
    if (const auto at = std::ranges::mismatch(mine, other).in1; at != mine.end()) return *at;
  return {};
}

TEST(Digests, IdentifyWhereTwoRunsDiverge) {
  const RunResults usual = digested("fsdp2", options_on(2));
  RunOptions other = options_on(2);
  other.batch = [deal = other.batch](const Place& place) {
    auto windows = deal(place);
    if (place.step == 1 && place.piece() == 2) windows.front().tokens[3] ^= 1;
    return windows;
  };
  const StepDigest token = first_that_differs(usual, digested("fsdp2", other));
  EXPECT_EQ(token.kind, StepDigest::Kind::forward);
  EXPECT_EQ(token.piece, 2);
  EXPECT_EQ(token.name, "embedding");
  RunOptions flipped = options_on(2);
  flipped.flip = Flip{.what = Flip::What::gathered, .rank = 1, .step = 2, .element = 7, .bit = 29};
  const StepDigest weight = first_that_differs(usual, digested("fsdp2", flipped));
  EXPECT_EQ(weight.kind, StepDigest::Kind::forward);
  EXPECT_EQ(weight.piece, 1);
  EXPECT_EQ(weight.name, "block 0");
}

TEST(Verification, ReportsNothingForACorrectRunAndIsBitIdentical) {
  for (const int ranks : {1, 2, 3, 5}) {
    RunOptions options = options_on(ranks);
    options.collects = true;
    const RunResults usual = run(stack("fsdp2"), options);
    options.verifies = true;
    const RunResults verified = run(stack("fsdp2"), options);
    expect_same_bits(verified, usual);
    EXPECT_EQ(verified.norms, usual.norms);
    expect_planned_bytes(verified);
  }
}

std::string found_by_verification(int ranks, std::string_view strategy, const Flip& flip) {
  RunOptions options = options_on(ranks);
  options.verifies = true;
  options.flip = flip;
  return error_of<CorruptionError>([&] { run(stack(strategy), options); });
}

/// Flips any bit of gradients or of values at rest, but only exponent bits of gathered weights, since the lowest bits
/// may be lost in sums.
TEST(Verification, FindsEachFlippedBitAndReportsTheRank) {
  std::mt19937 random(7);
  const int count = sanitized ? 10 : 100;
  for (int i = 0; i < count; ++i) {
    const auto what = static_cast<Flip::What>(i % 5);
    const int ranks = 1 + static_cast<int>(random() % 4);
    const Flip flip{
        .what = what,
        .rank = static_cast<int>(random() % static_cast<unsigned>(ranks)),
        .step = 2,
        .element = static_cast<std::int64_t>(random() % 1000),
        .bit = what == Flip::What::gathered ? 24 + static_cast<int>(random() % 6) : static_cast<int>(random() % 32)};
    const std::string found = found_by_verification(ranks, i % 2 == 0 ? "fsdp2" : "zero2", flip);
    EXPECT_NE(found.find(message("rank ", flip.rank, " on ")), std::string::npos)
        << "flip " << i << " on rank " << flip.rank << " of " << ranks << ": " << found;
    EXPECT_EQ(found.find(", or rank"), std::string::npos) << found;
  }
}

}  // namespace
}  // namespace fsdp::test
