// SPDX-License-Identifier: Apache-2.0
// Strategies and numbers of ranks change how the same arithmetic is distributed, not its result.
#include <algorithm>
#include <chrono>

#include <gtest/gtest.h>

#include <tessera/fsdp/core/hash.hpp>
#include <tessera/fsdp/module/host_weights.hpp>

#include <support/small_llama.hpp>

namespace fsdp::test {
namespace {

using Names = std::vector<std::string>;

/// Whether a run matches one rank: relative difference at most 1e-5 in losses, 1e-4 in weights.
bool follows(const RunResults& found, const RunResults& alone) {
  return largest_relative(found.losses, alone.losses) <= 1e-5 && largest_relative(found.weights, alone.weights) <= 1e-4;
}

/// One point of the grid that every strategy must agree on.
RunOptions grid_options(int ranks, int micro_batches, bool recompute) {
  RunOptions options = with_steps(6, uneven_options(ranks, micro_batches));
  options.units.recompute = recompute;
  return options;
}

/// Strategies that reduce after every micro-batch sum over ranks before micro-batches; strategies that reduce only the
/// last one sum over micro-batches first. Results are bit-identical within each kind, and across both with one
/// micro-batch. A second axis, or a layout that joins other matmuls, sums in yet another order. Only the last point is
/// recomputed; tiling_test.cpp compares recomputed runs with others.
TEST(Parity, StrategiesAreBitIdenticalAndMatchOneRank) {
  const RunResults alone = run("fsdp2", grid_options(1, 1, false));
  EXPECT_LT(alone.losses.back(), 0.95 * alone.losses.front()) << "a test on weights that do not move shows nothing";
  for (const int ranks : sampled({1, 2, 3, 4}))
    for (const int micro_batches : sampled({1, 3}))
      for (const bool recompute : sampled({false, true})) {
        if (recompute && (ranks < 4 || micro_batches == 1)) continue;
        const RunOptions options = grid_options(ranks, micro_batches, recompute);
        const auto trace = [&](std::string_view stack) {
          return message(stack, ", ", ranks, " ranks, ", micro_batches, " micro-batches",
                         recompute ? ", recomputed" : "");
        };
        const RunResults each = run("fsdp2", options);
        const RunResults last = run("replicated", options);
        EXPECT_TRUE(follows(each, alone)) << trace("fsdp2");
        EXPECT_TRUE(follows(last, alone)) << trace("replicated");
        if (micro_batches == 1) expect_same_bits(last, each);
        for (const auto stack : {"fsdp2:no-reshard", "zero2", "zero3", "zero3:persist=20:prefetch=2", "fsdp2:1",
                                 "fsdp2/layout=rows/run-time"}) {
          SCOPED_TRACE(trace(stack));
          expect_same_bits(run(stack, options), each);
        }
        for (const auto stack : {"zero1", "fsdp2:deferred"}) {
          SCOPED_TRACE(trace(stack));
          expect_same_bits(run(stack, options), last);
        }
        for (const auto stack : {"hybrid:1", "hybrid:1:full", "hybrid:2", "hybrid:2:full"}) {
          if (ranks % ranks_per_group(stack) != 0) continue;
          SCOPED_TRACE(trace(stack));
          const RunResults found = run(stack, options);
          expect_follows(found, each, {.losses = 1e-6});
        }
      }
}

/// A delay before every gather, every reduction, and the scalar sum before the optimizer.
TEST(Parity, RandomDelaysGiveBitIdenticalResults) {
  for (const auto stack : {"fsdp2", "zero1", "zero3", "replicated", "fsdp2:2", "hybrid:2:full"}) {
    RunOptions options = grid_options(4, 2, true);
    options.steps = 3;
    const RunResults usual = run(stack, options);
    options.before = comm::random_delays(7, std::chrono::microseconds(500));
    SCOPED_TRACE(stack);
    expect_same_bits(run(stack, options), usual);
  }
}

TEST(Parity, ARepeatedRunIsBitIdentical) {
  expect_same_bits(run("fsdp2", uneven_options(3)), run("fsdp2", uneven_options(3)));
}

TEST(Parity, ATiedHeadMatchesOneRank) {
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

TEST(Parity, MistralAndQwenFamiliesMatchOneRank) {
  for (const char* const family : {"mistral", "qwen2", "qwen3"})
    for (const bool recompute : sampled({false, true})) {
      const auto options_on = [&](int ranks) {
        RunOptions options = grid_options(ranks, 1, recompute);
        options.config.family = family;
        options.config.sliding_window = 3;
        return options;
      };
      const RunResults first = run("fsdp2", options_on(3));
      EXPECT_TRUE(follows(first, run("fsdp2", options_on(1)))) << family;
      for (const auto stack : {"zero1", "zero2", "zero3:persist=20:prefetch=2", "replicated"}) {
        SCOPED_TRACE(message(stack, ", ", family));
        expect_same_bits(run(stack, options_on(3)), first);
      }
    }
}

/// Checks that these comparisons can fail.
TEST(Parity, ARankThatSkipsGradientReductionIsDetected) {
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

/// A bf16 has 8 significant bits: each rounding is off by at most 2^-9. A block rounds its stream about ten times in
/// sequence, so three blocks make about 30 independent roundings: an error of sqrt(30) x 2^-9, about 1 %, in the logits
/// and in a loss of a few nats.
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

TEST(Parity, ClippingMatchesOneRanksNormWithNaNInThePadding) {
  RunOptions options = uneven_options(1);
  options.clip = 0.1;
  const RunResults alone = run("fsdp2", options);
  for (const double norm : alone.norms) EXPECT_GT(norm, 2 * options.clip) << "nothing was clipped";
  for (const auto& [stack, ranks] :
       {std::pair("fsdp2", 3), std::pair("fsdp2:no-reshard", 3), std::pair("zero1", 3), std::pair("zero2", 3),
        std::pair("zero3", 3), std::pair("zero3:persist=19", 3), std::pair("replicated", 3),
        std::pair("fsdp2/layout=blocks/run-time", 3), std::pair("fsdp2:2", 4), std::pair("hybrid:2", 4),
        std::pair("hybrid:2:full", 4)}) {
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
  RunOptions options = with_steps(0, uneven_options(1));
  const Values expected = run("replicated", options).initial;
  for (const auto strategy : strategies)
    for (const int ranks : sampled({1, 2, 3, 4})) {
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

TEST(InitialValues, DoNotDependOnThreads) {
  const Parameter parameter{
      .name = "w", .shape = {61, 211}, .initial = {.kind = Initial::Kind::normal, .deviation = 0.1}};
  const std::int64_t begin = 11, count = 61 * 211 - 20;
  const std::uint64_t key = mixed(5) ^ hashed(hash_seed, parameter.name);
  std::vector<float> expected(static_cast<std::size_t>(count));
  std::ranges::generate(expected,
                        [&, at = begin]() mutable { return static_cast<float>(0.1 * optim::normal_at(key, at++)); });
  for (const int threads : {1, 2, 3, 0}) {
    std::vector<float> values(static_cast<std::size_t>(count), -1.0f);
    optim::initialize(Tensor<float>(values.data(), {count}), parameter, begin, 5, threads);
    EXPECT_EQ(values, expected) << threads << " threads";
  }
}

}  // namespace
}  // namespace fsdp::test
