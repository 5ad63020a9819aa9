// SPDX-License-Identifier: Apache-2.0
// Digests are the same on any number of ranks and show where two runs part; a verification names the rank that computes
// or remembers wrongly.
#include <random>

#include <gtest/gtest.h>

#include <tessera/fsdp/core/error.hpp>

#include <support/small_llama.hpp>

namespace fsdp::test {
namespace {

constexpr int pieces = 4;

RunOptions options_on(int ranks) {
  RunOptions options = uneven_options(ranks, sharding::micro_batches_of(pieces, ranks));
  options.most_sequences = most_dealt(12, pieces, 1);
  options.steps = 2;
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
  // 4 pieces of 4 forward and 4 backward streams, then gradients and weights of 5 units.
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

/// The first digest that two runs do not share.
StepDigest first_that_differs(const RunResults& a, const RunResults& b) {
  for (std::size_t step = 0; step < a.digests.size(); ++step)
    for (std::size_t i = 0; i < a.digests[step].size(); ++i)
      if (a.digests[step][i] != b.digests[step][i]) return a.digests[step][i];
  return {};
}

TEST(Digests, ShowWhereTwoRunsPart) {
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

TEST(Verification, FindsNothingWhereNothingIsWrongAndChangesNoBit) {
  for (const int ranks : {1, 2, 3, 5}) {
    RunOptions options = options_on(ranks);
    options.collects = true;
    const RunResults usual = run(stack("fsdp2"), options);
    options.verifies = true;
    const RunResults verified = run(stack("fsdp2"), options);
    EXPECT_EQ(verified.losses, usual.losses);
    EXPECT_EQ(verified.norms, usual.norms);
    EXPECT_EQ(tensors_that_differ(verified.weights, usual.weights), std::vector<std::string>{});
    for (const Memory& memory : verified.memory) EXPECT_EQ(memory.used, memory.planned);
  }
}

std::string found_by_verification(int ranks, std::string_view strategy, const Flip& flip) {
  RunOptions options = options_on(ranks);
  options.verifies = true;
  options.flip = flip;
  try {
    run(stack(strategy), options);
  } catch (const CorruptionError& error) {
    return error.what();
  }
  return {};
}

/// Any bit of a gradient or of what rests; of weights that are computed with, a bit of the exponent, since the lowest
/// ones are lost in sums.
TEST(Verification, FindsEachFlippedBitAndNamesTheRank) {
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
