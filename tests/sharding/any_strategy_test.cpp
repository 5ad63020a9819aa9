// SPDX-License-Identifier: Apache-2.0
// RunTimeAny behaves like each strategy that it contains: results and memory equal those of the compile-time types with
// the strategy's placements. RunTimeHybridFull is such a type itself.
#include <cstdlib>
#include <string>
#include <string_view>
#include <vector>

#include <gtest/gtest.h>

#include <support/errors.hpp>
#include <tessera/fsdp/core/error.hpp>
#include <tessera/fsdp/core/policy_text.hpp>
#include <tessera/fsdp/sharding/run_time.hpp>

#include <support/small_llama.hpp>

namespace fsdp::test {
namespace {

constexpr std::string_view layouts[] = {"", "per-parameter", "flat", "rows", "owned", "blocks"};

bool sweeps_whole() {
  const char* const sweep = std::getenv("TESSERA_SWEEP");  // NOLINT(concurrency-mt-unsafe): nothing here sets variables
  return sweep != nullptr && std::string_view(sweep) == "whole";
}

/// Every kind of strategy, with 4 pieces if it supports pieces and with every group size from 1 to the number of ranks.
/// The mesh refuses sizes that do not divide the ranks.
std::vector<std::string> strategies_on(int ranks) {
  std::vector<std::string> texts;
  each_kind<RunTimeAny>([&](const RunTimeAny& kind) {
    RunTimeAny strategy = kind;
    const auto add = [&] {
      std::string text = policy_text(strategy);
      constexpr std::string_view pieces = ":pieces=";
      if (const std::size_t at = text.find(pieces); at != std::string::npos)
        text.replace(at + pieces.size(), std::string::npos, "4");
      texts.push_back(text);
    };
    std::visit(
        [&]<class S>(S& held) {
          if constexpr (mesh_axes_of<S> == 1) {
            add();
          } else {
            for (int k = 1; k <= ranks; ++k) {
              held.group = k;
              add();
            }
          }
        },
        strategy.strategy);
  });
  return texts;
}

struct Outcome {
  RunResults results;
  std::string refusal;  ///< empty if the run was accepted
};

Outcome outcome_of(const std::string& stack, int ranks) {
  RunOptions options = with_steps(2, uneven_options(ranks, 2));
  options.digests = true;
  if (stack.find("pieces") != std::string::npos) {
    options.micro_batches = sharding::micro_batches_of(4, ranks);
    options.most_sequences = most_dealt(12, 4, 1);
  }
  Outcome outcome;
  outcome.refusal = error_of<InputError>([&] { outcome.results = run(stack, options); });
  return outcome;
}

void expect_alike(const RunResults& found, const RunResults& expected) {
  expect_same_bits(found, expected);
  EXPECT_EQ(found.digests, expected.digests);
  EXPECT_EQ(found.schedule, expected.schedule);
  EXPECT_EQ(found.communicators, expected.communicators);
  expect_planned_bytes(found);
  expect_same_bytes(found, expected);
  EXPECT_EQ(found.norms, expected.norms);
  EXPECT_EQ(found.traffic, expected.traffic);
}

TEST(AnyStrategy, BehavesLikeTheCompileTimeStrategyWithItsPlacements) {
  for (const int ranks : sweeps_whole() ? std::vector{1, 2, 3, 4} : std::vector{4})
    for (const std::string& strategy : strategies_on(ranks))
      for (const std::string_view layout : layouts) {
        if (!sweeps_whole() && !layout.empty() && layout != "blocks") continue;
        const std::string chosen = strategy + (layout.empty() ? "" : message("/layout=", layout));
        SCOPED_TRACE(message(chosen, ", ", ranks, " ranks"));
        const Outcome found = outcome_of(chosen + "/run-time", ranks);
        const Outcome expected = outcome_of(chosen + "/by-placement", ranks);
        EXPECT_EQ(found.refusal, expected.refusal);
        if (expected.refusal.empty()) expect_alike(found.results, expected.results);
      }
}

TEST(AnyStrategy, IsBitIdenticalWithTheOptimizerInHostMemory) {
  for (const int ranks : sweeps_whole() ? std::vector{1, 2, 3, 4} : std::vector{2})
    for (const std::string& strategy : strategies_on(ranks)) {
      SCOPED_TRACE(message(strategy, ", ", ranks, " ranks"));
      const Outcome found = outcome_of(strategy + "/run-time/offload", ranks);
      const Outcome expected = outcome_of(strategy + "/run-time", ranks);
      EXPECT_EQ(found.refusal, expected.refusal);
      expect_same_bits(found.results, expected.results);
      EXPECT_EQ(found.results.traffic, expected.results.traffic);
      expect_planned_bytes(found.results);
      for (const Memory& memory : found.results.memory) EXPECT_GT(memory.used_offload, 0);
    }
}

}  // namespace
}  // namespace fsdp::test
