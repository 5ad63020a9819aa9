// SPDX-License-Identifier: Apache-2.0
// Strategies and numbers of ranks are different ways to do the same arithmetic.
#include <chrono>

#include <gtest/gtest.h>

#include <support/small_llama.hpp>

namespace fsdp::test {
namespace {

using Names = std::vector<std::string>;

/// What two runs of the same ranks must share to the bit.
void expect_same_bits(const RunResults& found, const RunResults& expected) {
  EXPECT_EQ(found.losses, expected.losses);
  EXPECT_EQ(tensors_that_differ(found.gradients, expected.gradients), Names{});
  EXPECT_EQ(tensors_that_differ(found.weights, expected.weights), Names{});
}

/// Whether a run follows one rank: losses 1e-5, weights 1e-4, relative.
bool follows(const RunResults& found, const RunResults& alone) {
  return largest_relative(found.losses, alone.losses) <= 1e-5 && largest_relative(found.weights, alone.weights) <= 1e-4;
}

TEST(Parity, StrategiesGiveTheSameLossesAndWeightsToTheBitAndFollowOneRank) {
  const RunResults alone = run("fsdp2", uneven_options(1));
  EXPECT_LT(alone.losses.back(), 0.95 * alone.losses.front()) << "a test on weights that do not move shows nothing";
  for (const int ranks : {1, 2, 3, 4}) {
    SCOPED_TRACE(message(ranks, " ranks"));
    const RunResults first = run("fsdp2", uneven_options(ranks));
    EXPECT_TRUE(follows(first, alone));
    for (const auto strategy : {"fsdp2:no-reshard", "zero1", "zero2", "zero3", "replicated"}) {
      SCOPED_TRACE(strategy);
      expect_same_bits(run(strategy, uneven_options(ranks)), first);
    }
  }
}

TEST(Parity, DelaysBeforeCollectivesChangeNoBit) {
  for (const auto strategy : strategies) {
    SCOPED_TRACE(strategy);
    RunOptions options = uneven_options(3);
    options.steps = 4;
    const RunResults usual = run(strategy, options);
    options.before = comm::random_delays(1, std::chrono::microseconds(300));
    expect_same_bits(run(strategy, options), usual);
  }
}

TEST(Parity, ARunIsRepeatedToTheBit) {
  expect_same_bits(run("fsdp2", uneven_options(3)), run("fsdp2", uneven_options(3)));
}

/// Some sum micro-batches before ranks, the others ranks before micro-batches: equal but for rounding.
TEST(Parity, WithMicroBatchesStrategiesThatReduceAtTheSameTimeAgreeToTheBit) {
  const RunResults alone = run("fsdp2", uneven_options(1));
  for (const int micro_batches : {2, 3}) {
    const RunResults first = run("fsdp2", uneven_options(2, micro_batches));
    for (const auto strategy : {"fsdp2:no-reshard", "zero2", "zero3"})
      expect_same_bits(run(strategy, uneven_options(2, micro_batches)), first);
    EXPECT_TRUE(follows(first, alone));
    const RunResults last = run("replicated", uneven_options(2, micro_batches));
    expect_same_bits(run("zero1", uneven_options(2, micro_batches)), last);
    EXPECT_TRUE(follows(last, alone));
  }
}

TEST(Parity, ATiedHeadFollowsOneRankToo) {
  RunOptions options = uneven_options(1);
  options.config.tied = true;
  const RunResults alone = run("fsdp2", options);
  options = uneven_options(3);
  options.config.tied = true;
  const RunResults first = run("fsdp2", options);
  EXPECT_TRUE(follows(first, alone));
  expect_same_bits(run("zero3", options), first);
  expect_same_bits(run("replicated", options), first);
}

/// These comparisons must be able to fail.
TEST(Parity, ARankThatStepsOnItsOwnGradientsIsFound) {
  const RunResults alone = run("fsdp2", uneven_options(1));
  RunOptions options = uneven_options(2);
  const RunResults sound = run("watched", options);
  expect_same_bits(sound, run("fsdp2", options));

  options.steps_on_own_gradients = true;
  const RunResults broken = run("watched", options);
  EXPECT_FALSE(follows(broken, alone));
  EXPECT_GT(largest_relative(broken.losses, alone.losses), 1e-4);
  EXPECT_GT(largest_relative(broken.weights, alone.weights), 1e-3);
  EXPECT_NE(broken.losses, sound.losses);
  EXPECT_GT(tensors_that_differ(broken.weights, sound.weights).size(), 20u);
}

/// A bf16 has 8 significant bits: each rounding is off by at most 2^-9. A block rounds its stream about ten times in a
/// row and three blocks make some 30 independent roundings: sqrt(30) x 2^-9, about 1 %, of the logits, and of a loss of
/// a few nats.
TEST(Parity, Bf16FollowsTheLossCurveOfFp32WithinOnePercent) {
  for (const int ranks : {1, 3}) {
    RunOptions options = uneven_options(ranks);
    options.lr = 1e-2;
    const RunResults fp32 = run("fsdp2", options);
    const RunResults bf16 = run("fsdp2/bf16", options);
    EXPECT_LT(fp32.losses.back(), 0.7 * fp32.losses.front());
    EXPECT_LE(largest_relative(bf16.losses, fp32.losses), 0.01);
    EXPECT_GT(largest_relative(bf16.losses, fp32.losses), 1e-6) << "this was not bf16";
    EXPECT_LE(relative(bf16.gradients.at("lm_head.weight"), fp32.gradients.at("lm_head.weight")), 0.02);
  }
}

TEST(Parity, ClippingAtEachStepFollowsOneRanksNormWithNaNInThePadding) {
  RunOptions options = uneven_options(1);
  options.clip = 0.1;
  const RunResults alone = run("fsdp2", options);
  for (const double norm : alone.norms) EXPECT_GT(norm, 2 * options.clip) << "nothing was clipped";
  for (const auto& [stack, ranks] :
       {std::pair("fsdp2", 3), std::pair("fsdp2:no-reshard", 3), std::pair("zero1", 3), std::pair("zero2", 3),
        std::pair("zero3", 3), std::pair("zero3:persist=19", 3), std::pair("replicated", 3), std::pair("fsdp2/rows", 3),
        std::pair("fsdp2:2", 4), std::pair("hybrid:2", 4), std::pair("hybrid:2:full", 4)}) {
    SCOPED_TRACE(stack);
    options = uneven_options(ranks);
    options.clip = 0.1;
    options.nan_in_padding = true;
    const RunResults found = run(stack, options);
    EXPECT_LE(largest_relative(found.norms, alone.norms), 1e-6);
    EXPECT_LE(largest_relative(found.losses, alone.losses), 1e-6);
  }
}

TEST(InitialValues, DoNotDependOnSharding) {
  RunOptions options = uneven_options(1);
  options.steps = 0;
  const Values expected = run("replicated", options).initial;
  for (const auto strategy : strategies)
    for (const int ranks : {1, 2, 3, 4}) {
      options.ranks = ranks;
      EXPECT_EQ(tensors_that_differ(run(strategy, options).initial, expected), Names{})
          << strategy << ", " << ranks << " ranks";
    }
  EXPECT_EQ(expected.at("model.norm.weight"), std::vector<float>(19, 1.0f));
  double squares = 0;
  for (const float value : expected.at("lm_head.weight"))
    squares += static_cast<double>(value) * static_cast<double>(value);
  EXPECT_NEAR(std::sqrt(squares / (37 * 19)), 0.02, 0.002);

  options.seed = 2;
  EXPECT_EQ(tensors_that_differ(run("fsdp2", options).initial, expected).size(), 23u) << "all but the 7 norms";
}

}  // namespace
}  // namespace fsdp::test
