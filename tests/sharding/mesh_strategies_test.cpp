// SPDX-License-Identifier: Apache-2.0
// Strategies on a mesh of two axes: resharding over k ranks, HSDP, HFSDP.
#include <algorithm>
#include <ostream>
#include <utility>

#include <gtest/gtest.h>

#include <support/small_llama.hpp>

namespace fsdp::test {
namespace {

std::int64_t count(const std::vector<comm::Record>& records, std::string_view what) {
  return std::ranges::count_if(records, [&](const comm::Record& record) { return record.label.what == what; });
}

TEST(Mesh, StrategiesMatchOneRank) {
  const RunResults alone = run("fsdp2", uneven_options(1));
  for (const auto& [stack, ranks] :
       {std::pair("fsdp2:2", 4), std::pair("fsdp2:1", 3), std::pair("fsdp2:3", 3), std::pair("hybrid:1", 3),
        std::pair("hybrid:2", 2), std::pair("hybrid:2", 4), std::pair("hybrid:3", 3), std::pair("hybrid:2:full", 4),
        std::pair("hybrid:1:full", 3), std::pair("hybrid:2:full", 2), std::pair("hybrid:1:full", 1)})
    for (const int micro_batches : sampled({1, 3})) {
      SCOPED_TRACE(message(stack, " on ", ranks, " ranks, ", micro_batches, " micro-batches"));
      const RunResults found = run(stack, uneven_options(ranks, micro_batches));
      expect_follows(found, alone, {.losses = 1e-6});
      expect_planned_bytes(found);
    }
}

TEST(Mesh, ReshardingOverKRanksIsBitIdenticalToReshardingOverAll) {
  for (const auto& [stack, ranks] : {std::pair("fsdp2:2", 4), std::pair("fsdp2:1", 2), std::pair("fsdp2:2", 2)})
    for (const int micro_batches : sampled({1, 3})) {
      const RunResults found = run(stack, uneven_options(ranks, micro_batches));
      const RunResults expected = run("fsdp2", uneven_options(ranks, micro_batches));
      expect_same_bits(found, expected, stack);
    }
}

TEST(Mesh, AGroupOfAllRanksIsBitIdenticalToTheInnerStrategy) {
  for (const auto stack : {"hybrid:3", "hybrid:3:full"}) {
    const RunResults found = run(stack, uneven_options(3, 2));
    const RunResults expected = run("fsdp2", uneven_options(3, 2));
    expect_same_bits(found, expected, stack);
  }
}

TEST(Mesh, ShardingTheOptimizerAcrossGroupsIsBitIdentical) {
  for (const int micro_batches : {1, 2}) {
    const RunResults replicated = run("hybrid:2", uneven_options(4, micro_batches));
    const RunResults sharded = run("hybrid:2:full", uneven_options(4, micro_batches));
    expect_same_bits(sharded, replicated);
    EXPECT_LT(used_bytes(sharded, device::MemoryKind::optimizer),
              used_bytes(replicated, device::MemoryKind::optimizer));
  }
}

TEST(Mesh, Bf16MatchesFp32WithTheOptimizerShardedAcrossGroups) {
  RunOptions options = uneven_options(4, 2);
  options.lr = 1e-2;
  const RunResults fp32 = run("hybrid:2:full", options);
  const RunResults bf16 = run("hybrid:2:full/bf16", options);
  EXPECT_LE(largest_relative(bf16.losses, fp32.losses), 0.01);
  expect_planned_bytes(bf16);
}

/// L = 3 blocks, U = 5 units.
TEST(Mesh, CollectivesOfAStepMatchTheFormulas) {
  for (const int m : sampled({1, 3})) {
    const RunOptions options = with_steps(2, uneven_options(4, m));
    const RunResults group = run("fsdp2:2", options);
    EXPECT_EQ(count(group.records, "weights"), 5 * m);
    EXPECT_EQ(count(group.inner_records, "kept weights"), 2 * m);
    EXPECT_EQ(count(group.records, "gradients"), 5 * m);
    EXPECT_TRUE(group.across_records.empty());

    const RunResults hybrid = run("hybrid:2", options);
    EXPECT_EQ(count(hybrid.inner_records, "weights"), (5 + 3 - 1) * m);
    EXPECT_EQ(count(hybrid.inner_records, "gradients"), 5 * m);
    EXPECT_EQ(count(hybrid.across_records, "gradients across"), 5);
    EXPECT_EQ(hybrid.across_records.size(), 5u);
    for (const auto& record : hybrid.across_records) EXPECT_EQ(record.op, comm::Op::all_reduce);

    const RunResults full = run("hybrid:2:full", options);
    EXPECT_EQ(count(full.inner_records, "weights"), (5 + 3 - 1) * m);
    EXPECT_EQ(count(full.inner_records, "gradients"), 5 * m);
    EXPECT_EQ(count(full.across_records, "weights across"), 5);
    EXPECT_EQ(count(full.across_records, "gradients across"), 5);
    EXPECT_EQ(full.across_records.size(), 10u);
  }
}

struct Counts {
  std::int64_t gathers, scatters, reduces;
  friend bool operator==(const Counts&, const Counts&) = default;
  friend std::ostream& operator<<(std::ostream& out, const Counts& c) {
    return out << c.gathers << " gathers, " << c.scatters << " reduce-scatters, " << c.reduces << " all-reduces";
  }
};

TEST(Collectives, OfEveryStrategyMatchTheFormulas) {
  constexpr std::int64_t blocks = 3, units = blocks + 2;
  for (const std::int64_t m : sampled<std::int64_t>({1, 2, 3})) {
    const std::pair<const char*, Counts> expected[] = {
        {"fsdp2", {(units + blocks - 1) * m, units * m, 0}},
        {"fsdp2/layout=blocks/run-time", {(units + blocks - 1) * m, units * m, 0}},
        {"zero3", {(units + blocks - 1) * m, units * m, 0}},
        {"zero3:prefetch=3", {(units + blocks - 2) * m, units * m, 0}},  // one more block is kept until after the head
        {"zero3:persist=19", {(units + blocks - 1) * m + 4, units * m + 4 * m, 0}},  // norms of 3 blocks and the head
        {"fsdp2:no-reshard", {units * m, units * m, 0}},
        {"fsdp2:deferred", {(units + blocks - 1) * m, units, 0}},
        {"zero1", {units, units, 0}},
        {"zero2", {units, units * m, 0}},
        {"replicated", {0, 0, units}}};
    for (const auto& [stack, counts] : expected) {
      const RunResults results = run(stack, with_steps(2, uneven_options(2, static_cast<int>(m))));
      const auto of = [&](comm::Op op) { return std::ranges::count(results.records, op, &comm::Record::op); };
      EXPECT_EQ((Counts{of(comm::Op::all_gather), of(comm::Op::reduce_scatter), of(comm::Op::all_reduce)}), counts)
          << stack << ", " << m << " micro-batches";
    }
  }
}

TEST(Mesh, DeferredReductionSendsGradientsOnceAndMatchesOneRank) {
  RunOptions options = uneven_options(2, 3);
  const RunResults deferred = run("fsdp2:deferred", options);
  EXPECT_EQ(count(deferred.records, "gradients"), 5);
  EXPECT_EQ(count(deferred.records, "weights"), 7 * 3);
  const RunResults last = run("replicated", options);  // also reduces in the last micro-batch: the same order of sums
  expect_same_bits(deferred, last);
}

TEST(Mesh, GroupsThatDoNotDivideTheRanksAreAnError) {
  for (const auto stack : {"fsdp2:2", "hybrid:2", "hybrid:4", "hybrid:2:full"})
    EXPECT_THROW(run(stack, uneven_options(3)), InputError) << stack;
  EXPECT_THROW(run("zero3:live=2000", uneven_options(2)), InputError) << "a block has 2990 elements";
}

TEST(Mesh, TiedWeightsEvaluationAndGenerationMatchOneAxis) {
  RunOptions options = uneven_options(4, 2);
  options.config.tied = true;
  options.evaluated = some_windows(2, 7, 37);
  options.logits_of = some_windows(1, 7, 37);
  const RunResults expected = run("fsdp2", options);
  for (const auto stack : mesh_strategies) {
    const RunResults found = run(stack, options);
    EXPECT_LE(largest_relative(found.losses, expected.losses), 1e-6) << stack;
    EXPECT_NEAR(found.last_evaluation, expected.last_evaluation, 1e-5) << stack;
    EXPECT_EQ(found.first_evaluation, expected.first_evaluation) << stack;
    EXPECT_EQ(found.logits, expected.logits) << stack;
  }
}

}  // namespace
}  // namespace fsdp::test
