// SPDX-License-Identifier: Apache-2.0
#include <string>
#include <tuple>

#include <gtest/gtest.h>

#include <models/golden_check.hpp>
#include <support/sanitizer.hpp>

namespace fsdp::test {
namespace {

/// Whether every tiling is combined with every number of micro-batches; otherwise with one of them, to save time.
constexpr bool crossed(int ranks) { return !sanitized && ranks <= 2; }

/// Parameters: strategy and number of ranks.
class Golden20Steps : public ::testing::TestWithParam<std::tuple<std::string_view, int>> {};

TEST_P(Golden20Steps, MatchPyTorchForAnyMicroBatchesAndTiling) {
  const auto [strategy, ranks] = GetParam();
  if (sanitized && ranks == 6 && strategy != "fsdp2")
    GTEST_SKIP() << "six ranks of every strategy run without a sanitizer";
  for (const auto& [name, clip] : golden_folders) {
    const Golden golden(name);
    for (const int micro_batches : {1, 2, 3})
      for (const auto& [tiling_name, tiling, number] : golden_tilings()) {
        if (!crossed(ranks) && number != micro_batches) continue;
        SCOPED_TRACE(message(name, ", ", micro_batches, " micro-batches, tiling ", tiling_name));
        RunOptions options = golden.options(ranks, micro_batches, tiling, clip);
        if (micro_batches == 1) options.logits_of = golden.windows;
        options.begun = number;
        expect_golden(run(strategy, options), golden);
      }
  }
}

TEST_P(Golden20Steps, OfEveryFamilyMatchTransformers) {
  const auto [strategy, ranks] = GetParam();
  const bool one_place = strategy == "fsdp2" && ranks == 3;
  if (sanitized && !one_place) GTEST_SKIP() << "three ranks of fsdp2 run under sanitizers";
  if (ranks == 6 && strategy != "fsdp2") GTEST_SKIP() << "six ranks of fsdp2 run";
  for (const auto& [name, clip] : family_folders) {
    const Golden golden(name);
    for (const auto& [tiling_name, tiling, micro_batches] : golden_tilings()) {
      if (micro_batches != 1 + ranks % 3) continue;  // each is covered for some number of ranks
      SCOPED_TRACE(message(name, ", ", micro_batches, " micro-batches, tiling ", tiling_name));
      RunOptions options = golden.options(ranks, micro_batches, tiling, clip);
      if (micro_batches == 1) options.logits_of = golden.windows;
      options.begun = 1 + ranks;
      expect_golden(run(strategy, options), golden, 1e-5, 1e-4);
    }
  }
}

INSTANTIATE_TEST_SUITE_P(OnThreads, Golden20Steps,
                         ::testing::Combine(::testing::ValuesIn(strategies), ::testing::Values(1, 2, 3, 6)),
                         [](const auto& info) {
                           return test_name(std::get<0>(info.param)) + "_" + std::to_string(std::get<1>(info.param)) +
                                  "ranks";
                         });

TEST(Golden, EvaluationBeforeTrainingMatchesTheGoldenLoss) {
  const Golden golden("llama-odd");
  RunOptions options = golden.options(2, 1, {}, 1.0);
  options.steps = 1;
  options.evaluated = golden.windows;
  EXPECT_LE(largest_relative({run("fsdp2", options).first_evaluation}, golden.read("loss")), 1e-5);
}

TEST(Golden, DetectsAMissingStep) {
  const Golden golden("llama-gqa");
  RunOptions options = golden.options(1, 1, {}, 0.0);
  options.steps = 19;
  const RunResults results = run("fsdp2", options);
  double largest = 0;
  for (const auto& [name, values] : results.weights)
    largest = std::max(largest, relative(values, golden.read("adamw." + name)));
  EXPECT_GT(largest, 1e-4);
}

TEST(Golden, DetectsAWrongWindowOrRopeScaling) {
  const auto expect_other = [](const char* name, const std::function<void(LlamaConfig&)>& change) {
    const Golden golden(name);
    RunOptions options = golden.options(1, 1, {}, 0.0);
    options.steps = 1;
    change(options.config);
    EXPECT_GT(largest_relative({run("fsdp2", options).losses.front()}, golden.read("loss")), 1e-5) << name;
  };
  expect_other("llama-llama3", [](LlamaConfig& c) { c.rope.type = "default"; });
  expect_other("mistral-window", [](LlamaConfig& c) { c.sliding_window = 0; });
  expect_other("mistral-window", [](LlamaConfig& c) { c.sliding_window = 4; });
  expect_other("mistral-window", [](LlamaConfig& c) { c.rope.factor = 3; });
  expect_other("qwen2-yarn", [](LlamaConfig& c) { c.rope.attention_factor = 1; });
  expect_other("qwen2-yarn", [](LlamaConfig& c) { c.rope.beta_fast = 2; });
  expect_other("qwen3-window", [](LlamaConfig& c) { c.full_layers = 0; });
}

TEST(Golden, DetectsWrongGradientClipping) {
  const Golden golden("llama-odd");
  const RunResults results = run("replicated", golden.options(1, 1, {}, 0.0));
  EXPECT_GT(largest_relative(results.losses, golden.read("adamw.losses")), 1e-5);
}

}  // namespace
}  // namespace fsdp::test
