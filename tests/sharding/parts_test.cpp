// SPDX-License-Identifier: Apache-2.0
// A Llama whose tensors have different strategies computes and sends what it does with one strategy for all.
#include <cstdlib>
#include <map>
#include <optional>
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

/// A strategy, and whether it reduces after every micro-batch.
struct Kind {
  const char* text;
  bool reduces_each;
};
constexpr Kind part_kinds[] = {{"fsdp2", true},  {"fsdp2:no-reshard", true}, {"zero2", true},           {"zero3", true},
                          {"zero1", false}, {"replicated", false},      {"zero3:persist=20", true}};
const std::optional<buffer::AnyLayout> part_layouts[] = {
    {}, {buffer::PerParameter{}}, {buffer::Flat{}}, {buffer::Owned{}}, {buffer::Rows{}}};

/// Patterns of which no two select the same tensor; no pattern selects a part of what one matmul joins.
const std::vector<std::string> of_units{"embedding", "block 0", "block 1", "block 2", "head"},
    of_tensors{"embed_tokens", "input_layernorm", "down_proj", "[qkv]_proj", "lm_head"};

/// A random assignment of strategies to patterns. The last part is that of all other tensors.
struct Assignment {
  std::vector<PartOptions> parts;
  std::vector<bool> reduces_each;
  bool has_rows = false;

  Assignment(std::minstd_rand& random, std::vector<std::string> patterns) {
    std::erase_if(patterns, [&](const auto&) { return random() % 3 == 0; });
    patterns.push_back("");
    for (const std::string& pattern : patterns) {
      const Kind& kind = part_kinds[random() % std::size(part_kinds)];
      const auto& layout = part_layouts[random() % std::size(part_layouts)];
      has_rows = has_rows || (layout && layout->text() == "rows");
      reduces_each.push_back(kind.reduces_each);
      parts.push_back({pattern, kind.text, layout});
    }
  }
  std::string text() const {
    std::string text;
    for (const PartOptions& part : parts) text += message(part.pattern, " = ", stack_of(part), ", ");
    return text;
  }
  /// The index of the part that a tensor has.
  std::size_t part_of(const std::string& name) const {
    constexpr std::string_view layer = "model.layers.";
    const std::string unit = name.starts_with(layer)                 ? message("block ", name[layer.size()])
                             : name.starts_with("model.embed_tokens") ? "embedding"
                                                                      : "head";
    std::size_t at = 0;
    while (at + 1 < parts.size() && !TensorPattern{parts[at].pattern}.matches(unit, {.name = name})) ++at;
    return at;
  }
  static std::string stack_of(const PartOptions& part) {
    return part.sharding + (part.layout ? "/layout=" + part.layout->text() : "") + "/run-time";
  }
  RunResults run(RunOptions options, const char* suffix = "") const {
    options.parts.assign(parts.begin(), parts.end() - 1);
    return test::run(stack_of(parts.back()) + suffix, options);
  }
};

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
/// reduction, and no layout of rows. In the first step a tensor's gradient only depends on its own strategy.
void check_parts(const Assignment& assignment, const RunResults& found, int ranks, int micro_batches) {
  const RunResults& each = run_once("fsdp2/run-time", ranks, micro_batches);
  const RunResults& last = run_once("replicated/run-time", ranks, micro_batches);
  const auto mixed = std::ranges::count(assignment.reduces_each, true) % std::ssize(assignment.reduces_each) != 0;
  const RunResults& like = assignment.reduces_each.front() ? each : last;
  if (!assignment.has_rows && (micro_batches == 1 || !mixed)) expect_same_bits(found, like);
  if (!assignment.has_rows)
    for (const auto& [name, gradient] : found.gradients)
      EXPECT_EQ(gradient, (assignment.reduces_each[assignment.part_of(name)] ? each : last).gradients.at(name)) << name;
  expect_follows(found, like, {.losses = 1e-6});
  expect_follows(found, run_once("fsdp2/run-time", 1, 1), {.losses = 1e-6});
  EXPECT_LE(largest_relative(found.norms, like.norms), 1e-6);
  expect_planned_bytes(found);
}

TEST(Parts, OfRandomStrategiesMatchSingleStrategies) {
  const char* const sweep = std::getenv("TESSERA_SWEEP");  // NOLINT(concurrency-mt-unsafe): nothing here sets variables
  std::minstd_rand random(1);
  for (int trial = 0; trial < (sweep != nullptr ? 120 : sanitized ? 2 : 16); ++trial) {
    const int ranks = 1 + trial % 4, micro_batches = 1 + trial / 4 % 2;
    const Assignment assignment(random, trial % 3 == 0 ? of_tensors : of_units);
    SCOPED_TRACE(message("trial ", trial, ": ", assignment.text(), ranks, " ranks, ", micro_batches, " micro-batches"));
    const RunOptions options = with_steps(4, uneven_options(ranks, micro_batches));
    const RunResults found = assignment.run(options);
    check_parts(assignment, found, ranks, micro_batches);
    if (trial % 5 == 0) {
      const RunResults offloaded = assignment.run(options, "/offload");
      expect_same_bits(offloaded, found);
      expect_planned_bytes(offloaded);
    }
    if (trial % 3 == 0) continue;
    std::size_t part = 0;
    for (std::size_t unit = 0; unit < of_units.size(); ++unit) {
      const bool listed = part + 1 < assignment.parts.size() && assignment.parts[part].pattern == of_units[unit];
      const PartOptions& own = listed ? assignment.parts[part++] : assignment.parts.back();
      const RunResults& alone = run_once(Assignment::stack_of(own), ranks, micro_batches);
      EXPECT_EQ(collectives_of(found, static_cast<int>(unit)), collectives_of(alone, static_cast<int>(unit)));
    }
  }
}

TEST(Parts, OfOneStrategyAreThatStrategy) {
  for (const Kind& kind : part_kinds)
    for (const int ranks : sampled({1, 3})) {
      SCOPED_TRACE(message(kind.text, ", ", ranks, " ranks"));
      RunOptions options = with_steps(2, uneven_options(ranks, 2));
      const std::string stack = message(kind.text, "/run-time");
      const RunResults alone = run(stack, options);
      options.parts = {{"block 1", kind.text}, {"lm_head", kind.text}};
      const RunResults found = run(stack, options);
      expect_same_bits(found, alone);
      expect_same_bytes(found, alone);
      EXPECT_EQ(found.schedule, alone.schedule);
      EXPECT_EQ(found.traffic, alone.traffic);
      EXPECT_EQ(found.norms, alone.norms);
    }
}

/// Results are those of any number of ranks and of any assignment.
TEST(Parts, InPiecesAreBitIdenticalOnAnyNumberOfRanks) {
  std::optional<RunResults> expected;
  for (const int ranks : {1, 2, 3, 4})
    for (const bool several : {false, true}) {
      SCOPED_TRACE(message(ranks, " ranks"));
      RunOptions options = with_steps(3, uneven_options(ranks, sharding::micro_batches_of(4, ranks)));
      options.most_sequences = most_dealt(12, 4, 1);
      if (several)
        options.parts = {{"embedding", "zero1"}, {"head", "zero3"}, {"input_layernorm", "zero2", {buffer::Owned{}}}};
      const RunResults found = run("fsdp2:no-reshard:pieces=4/run-time", options);
      expect_planned_bytes(found);
      if (!expected) expected = found;
      expect_same_bits(found, *expected);
      EXPECT_EQ(found.norms, expected->norms);
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
    EXPECT_EQ(collectives_of(found, 1), collectives_of(without, 1));
    EXPECT_EQ(collectives_of(found, 4), collectives_of(without, 4));
    EXPECT_LT(std::ssize(found.records), calls);
    calls = std::ssize(found.records);
  }
}

TEST(Parts, ThatCannotBeCombinedAreRefused) {
  const auto refused = [](const char* rest, const char* part, const char* text) {
    RunOptions options = with_steps(1, uneven_options(2, 2));
    options.most_sequences = 12;
    options.parts = {{"block 0", part}};
    EXPECT_INPUT_ERROR(run(message(rest, "/run-time"), options), text);
  };
  refused("fsdp2", "zero2:pieces=4", "sharding: the part 'zero2:pieces=4' of a strategy per unit sets the pieces of a step");
  refused("fsdp2", "zero3:budget=64", "sets a budget for gathered weights, which is one for the whole module");
  refused("fsdp2", "fsdp2:prefetch=2", "sets how many units are gathered ahead");
  refused("fsdp2:pieces=4", "replicated", "parameters that are whole on every rank (replicated) add up each rank's");
  refused("fsdp2:pieces=4", "hybrid:2:zero1", "adds up the gradients of each group of ranks first");
  refused("hybrid:2", "hybrid:1", "form groups of 1 and of 2 ranks, and a module has one mesh");
}

}  // namespace
}  // namespace fsdp::test
