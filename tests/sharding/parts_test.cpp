// SPDX-License-Identifier: Apache-2.0
// A Llama whose tensors have different strategies computes and sends what it does with one strategy for all.
#include <cstdlib>
#include <map>
#include <random>
#include <string>
#include <string_view>
#include <tuple>
#include <vector>

#include <gtest/gtest.h>

#include <support/small_llama.hpp>
#include <tessera/fsdp/core/tensor_pattern.hpp>

namespace fsdp::test {
namespace {

using Patterns = std::vector<std::string>;
constexpr const char* part_strategies[] = {"fsdp2", "fsdp2:no-reshard", "zero2",           "zero3",
                                           "zero1", "replicated",       "zero3:persist=20"};
bool reduces_each(const std::string& strategy) { return strategy != "zero1" && strategy != "replicated"; }

/// Patterns of the units, and of tensors of units; none selects a part of what one matmul joins.
const Patterns of_units{"embed_tokens", "0", "1", "2", "lm_head|norm"},
    of_tensors{"embed_tokens", "input_layernorm", "down_proj", "[qkv]_proj", "lm_head"};

std::string stack_of(const PartOptions& part) {
  return part.sharding + (part.layout ? "/layout=" + part.layout->text() : "") + "/run-time";
}

/// Random strategies for some of the patterns, and at the end for all other tensors.
std::vector<PartOptions> random_parts(std::minstd_rand& random, Patterns patterns) {
  const std::optional<buffer::AnyLayout> layouts[] = {
      {}, {buffer::PerParameter{}}, {buffer::Flat{}}, {buffer::Owned{}}, {buffer::Rows{}}, {buffer::Blocks{}}};
  std::vector<PartOptions> parts;
  std::erase_if(patterns, [&](const auto&) { return random() % 3 == 0; });
  patterns.push_back("*");
  for (const std::string& pattern : patterns)
    parts.push_back(
        {pattern, part_strategies[random() % std::size(part_strategies)], layouts[random() % std::size(layouts)]});
  return parts;
}
/// The part of a tensor.
const PartOptions& part_of(const std::vector<PartOptions>& parts, const std::string& name) {
  return *std::ranges::find_if(parts, [&](const PartOptions& part) {
    return TensorPattern{part.pattern}.matches("", {.name = name, .shape = {}});
  });
}

/// Runs of single strategies, each of which runs once.
const RunResults& run_once(const std::string& stack, int ranks, int micro_batches) {
  static std::map<std::tuple<std::string, int, int>, RunResults> runs;
  RunResults& found = runs[{stack, ranks, micro_batches}];
  if (found.losses.empty()) found = run(stack, with_steps(4, uneven_options(ranks, micro_batches)));
  return found;
}

/// The collectives of a unit's largest group.
auto collectives_of(const RunResults& results, int unit) {
  std::vector<std::tuple<comm::Op, std::string_view, std::int64_t>> list;
  for (const comm::Record& record : results.records)
    if (record.label.unit == unit) list.emplace_back(record.op, record.label.what, record.bytes);
  return list;
}

/// The condition of Parity for bit-identical results of single strategies: one micro-batch, or the same kind of
/// reduction. In the first step a tensor's gradient only depends on its own strategy.
void check_results(const std::vector<PartOptions>& parts, const RunResults& found, int ranks, int micro_batches) {
  const auto like = [&](const PartOptions& part) -> const RunResults& {
    return run_once(reduces_each(part.sharding) ? "fsdp2/run-time" : "replicated/run-time", ranks, micro_batches);
  };
  const auto is_like_last = [&](const PartOptions& part) { return &like(part) == &like(parts.back()); };
  if (micro_batches == 1 || std::ranges::all_of(parts, is_like_last)) expect_same_bits(found, like(parts.back()));
  for (const auto& [name, gradient] : found.gradients)
    EXPECT_EQ(gradient, like(part_of(parts, name)).gradients.at(name)) << name;
  expect_follows(found, like(parts.back()), {.losses = 1e-6});
  expect_follows(found, run_once("fsdp2/run-time", 1, 1), {.losses = 1e-6});
  EXPECT_LE(largest_relative(found.norms, like(parts.back()).norms), 1e-6);
  expect_planned_bytes(found);
}

TEST(Parts, OfRandomStrategiesMatchSingleStrategies) {
  const char* const sweep = std::getenv("TESSERA_SWEEP");  // NOLINT(concurrency-mt-unsafe): nothing here sets variables
  std::minstd_rand random(1);
  for (int trial = 0; trial < (sweep != nullptr ? 120 : sanitized ? 2 : 16); ++trial) {
    const int ranks = 1 + trial % 4, micro_batches = 1 + trial / 4 % 2;
    const bool units = trial % 3 != 0;
    const std::vector<PartOptions> parts = random_parts(random, units ? of_units : of_tensors);
    std::string text = message("trial ", trial, ", ", ranks, " ranks, ", micro_batches, " micro-batches: ");
    for (const PartOptions& part : parts) text += message(part.pattern, " = ", stack_of(part), ", ");
    SCOPED_TRACE(text);
    RunOptions options = with_steps(4, uneven_options(ranks, micro_batches));
    options.parts.assign(parts.begin(), parts.end() - 1);
    const RunResults found = run(stack_of(parts.back()), options);
    check_results(parts, found, ranks, micro_batches);
    for (int unit = 0; units && unit < 5; ++unit) {
      const std::string& pattern = of_units[static_cast<std::size_t>(unit)];
      const bool listed = std::ranges::count(parts, pattern, &PartOptions::pattern) > 0;
      const PartOptions& own = listed ? *std::ranges::find(parts, pattern, &PartOptions::pattern) : parts.back();
      EXPECT_EQ(collectives_of(found, unit), collectives_of(run_once(stack_of(own), ranks, micro_batches), unit));
    }
    if (trial % 5 != 0 || sanitized) continue;  // a sanitizer's build has no stack with the optimizer in host memory
    const RunResults offloaded = run(stack_of(parts.back()) + "/offload", options);
    expect_same_bits(offloaded, found);
    expect_planned_bytes(offloaded);
  }
}

TEST(Parts, OfOneStrategyAreThatStrategy) {
  for (const std::string strategy : part_strategies) {
    SCOPED_TRACE(strategy);
    RunOptions options = with_steps(2, uneven_options(3, 2));
    const RunResults alone = run(strategy + "/run-time", options);
    options.parts = {{"block 1", strategy}, {"lm_head", strategy}};
    const RunResults found = run(strategy + "/run-time", options);
    expect_same_bits(found, alone);
    expect_same_bytes(found, alone);
    EXPECT_EQ(found.schedule, alone.schedule);
    EXPECT_EQ(found.traffic, alone.traffic);
    EXPECT_EQ(found.norms, alone.norms);
  }
}

TEST(Parts, UnderABudgetOnlyGroupsThatAreReleasedAfterEachUseAreHeldForLonger) {
  RunOptions options = with_steps(2, uneven_options(2, 2));
  options.parts = {{"block 0", "zero1"}, {"head", "fsdp2:no-reshard"}};
  const RunResults without = run("fsdp2/run-time", options);
  std::int64_t calls = std::ssize(without.records);
  for (const std::int64_t budget : {36 << 10, 64 << 10}) {
    SCOPED_TRACE(message(budget, " bytes"));
    const RunResults found = run(message("fsdp2:budget=", budget, "/run-time"), options);
    expect_same_bits(found, without);
    expect_planned_bytes(found);
    EXPECT_LE(used_bytes(found, device::MemoryKind::gathered), budget);
    for (const int unit : {1, 4}) EXPECT_EQ(collectives_of(found, unit), collectives_of(without, unit));
    EXPECT_LT(std::ssize(found.records), calls);
    calls = std::ssize(found.records);
  }
}

}  // namespace
}  // namespace fsdp::test
