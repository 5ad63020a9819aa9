// SPDX-License-Identifier: Apache-2.0
// Layouts change only the placement of elements; strategies that are chosen at run time change nothing.
#include <algorithm>

#include <gtest/gtest.h>

#include <support/nccl/queued.hpp>
#include <support/sanitizer.hpp>
#include <support/small_llama.hpp>
#include <support/temporary_folder.hpp>

namespace fsdp::test {
namespace {

using Names = std::vector<std::string>;

constexpr const char* tables[] = {"owned", "rows", "blocks"};

std::string in_layout(std::string_view strategy, std::string_view layout) {
  return message(strategy, "/layout=", layout, "/run-time");
}

/// Expects equal values and collectives, and planned memory on each rank. Norms are not compared: they are sums over
/// shards, and shards differ.
void expect_same_step(const RunResults& found, const RunResults& expected) {
  expect_same_bits(found, expected);
  const auto collectives = [](const std::vector<comm::Record>& records) {
    std::vector<std::pair<comm::Op, std::string>> list;
    for (const comm::Record& record : records) list.emplace_back(record.op, record.label.what);
    return list;
  };
  EXPECT_EQ(collectives(found.records), collectives(expected.records));
  EXPECT_EQ(collectives(found.inner_records), collectives(expected.inner_records));
  EXPECT_EQ(collectives(found.across_records), collectives(expected.across_records));
  expect_planned_bytes(found);
}

TEST(Layouts, ByTablesOfBordersAreBitIdenticalToPerParameter) {
  for (const auto& [strategy, ranks] :
       {std::pair("fsdp2", 1), std::pair("fsdp2", 2), std::pair("fsdp2:no-reshard", 3), std::pair("fsdp2:2", 4),
        std::pair("zero1", 3), std::pair("zero2", 2), std::pair("zero3", 4), std::pair("zero3:persist=20", 3),
        std::pair("hybrid:2", 4), std::pair("hybrid:2:full", 4)})
    for (const auto layout : tables)
      for (const int micro_batches : sampled({1, 2})) {
        SCOPED_TRACE(message(strategy, ", ", layout, ", ", ranks, " ranks, ", micro_batches, " micro-batches"));
        const RunOptions options = uneven_options(ranks, micro_batches);
        expect_same_step(run(in_layout(strategy, layout), options), run(strategy, options));
      }
  expect_same_step(run("fsdp2/owned", uneven_options(3)), run("fsdp2", uneven_options(3)));
}

/// Without padding between weights that read the same input, their matmuls are joined, which changes the last bits.
/// These sizes leave no padding. On 4 ranks, the heads of q are not divided evenly, and ranks have no key-value head.
TEST(Layouts, ByTablesOfBordersAreBitIdenticalWithJoinedMatmuls) {
  for (const int ranks : {2, 3, 4}) {
    RunOptions options = uneven_options(ranks);
    options.config = {.vocab_size = 64,
                      .hidden_size = 96,
                      .intermediate_size = 256,
                      .layers = 2,
                      .heads = 6,
                      .kv_heads = 2,
                      .head_dim = 16};
    options.steps = 3;
    const RunResults expected = run("fsdp2", options);
    for (const auto layout : tables) {
      SCOPED_TRACE(message(layout, ", ", ranks, " ranks"));
      expect_same_step(run(in_layout("fsdp2", layout), options), expected);
    }
  }
}

/// A model of one block has 12 tensors, one of them tied, on 16 ranks.
TEST(Layouts, ARankMayOwnNoTensor) {
  RunOptions options = with_steps(3, uneven_options(16));
  options.config = uneven_llama(1);
  options.config.tied = true;
  options.batch = deal(some_windows(16, 7, options.config.vocab_size));
  options.most_sequences = 1;
  const RunResults found = run(in_layout("fsdp2", "owned"), options);
  expect_same_step(found, run("fsdp2", options));
  constexpr auto weights = static_cast<std::size_t>(device::MemoryKind::weights);
  EXPECT_TRUE(std::ranges::any_of(found.memory, [](const Memory& memory) { return memory.used[weights] == 0; }));
}

TEST(Layouts, ByTablesOfBordersWorkWithFrozenReplicatedAndMergedUnits) {
  RunOptions options = uneven_options(3, 2);
  options.units = {.blocks_per_unit = 2, .recompute = true, .replicated = {"*norm*"}, .frozen = {"*up_proj*"}};
  options.evaluated = some_windows(2, 7, 37);
  options.logits_of = some_windows(1, 7, 37);
  const RunResults expected = run("zero3", options);
  for (const auto layout : tables) {
    SCOPED_TRACE(layout);
    const RunResults found = run(in_layout("zero3", layout), options);
    expect_same_step(found, expected);
    EXPECT_EQ(found.last_evaluation, expected.last_evaluation);
    EXPECT_EQ(found.logits, expected.logits);
  }
}

TEST(Layouts, WholeTensorsAreBitIdenticalOnQueuedDevicesAndOverNccl) {
  if (sanitized) GTEST_SKIP() << "stacks on queues are not built under a sanitizer";
  const RunOptions options = with_steps(3, uneven_options(3));
  const RunResults expected = run("fsdp2", options);
  const testing::NcclSums sums(testing::NcclSums::in_rank_order);
  for (const std::string_view device : {"/queued", "/nccl"}) {
    const RunResults found = run("fsdp2/layout=owned" + std::string(device), options);
    EXPECT_EQ(found.races, Names{}) << device;
    expect_same_bits(found, expected, std::string(device));
  }
}

TEST(Layouts, ACheckpointResumesBitIdenticallyWithAnyLayout) {
  const RunResults whole = run("fsdp2/owned", uneven_options(3));
  const auto blocks = in_layout("fsdp2", "blocks");
  for (const std::string& from : {std::string("fsdp2/owned"), blocks}) {
    const TemporaryFolder folder;
    run(from, saving(3, folder.path()));
    for (const std::string& stack : {std::string("fsdp2/owned"), std::string("fsdp2"), in_layout("zero3", "owned"),
                                     in_layout("hybrid:3", "owned"), blocks})
      expect_resumed(run(stack, resuming(3, 10, folder.path())), whole, stack);
  }
}

TEST(RunTimeStrategies, MatchTheirCompileTimeStrategiesInBitsNormsAndMemory) {
  for (const auto& [strategy, ranks] :
       {std::pair("fsdp2", 2), std::pair("fsdp2:no-reshard:prefetch=2", 3), std::pair("fsdp2:deferred", 2),
        std::pair("zero1", 2), std::pair("zero2", 3), std::pair("zero3:persist=20:prefetch=2", 2),
        std::pair("fsdp2:2", 4), std::pair("hybrid:2:deferred", 4), std::pair("hybrid:2:full", 4)}) {
    SCOPED_TRACE(message(strategy, ", ", ranks, " ranks"));
    const RunOptions options = uneven_options(ranks, 2);
    const RunResults expected = run(strategy, options);
    const RunResults found = run(std::string(strategy) + "/run-time", options);
    expect_same_step(found, expected);
    EXPECT_EQ(found.norms, expected.norms);
    expect_same_bytes(found, expected);
  }
}

TEST(RunTimeStrategies, AHybridAcceptsAnyInnerStrategy) {
  const RunOptions options = uneven_options(4, 2);
  const RunResults expected = run("hybrid:2", options);
  for (const auto inner : {":zero1", ":zero2", ":zero3:persist=20", ":no-reshard"})
    for (const auto kind : {"hybrid:2", "hybrid:2:full"}) {
      const RunResults found = run(message(kind, inner, "/run-time"), options);
      expect_follows(found, expected, {.losses = 1e-6}, message(kind, inner));
      for (const Memory& memory : found.memory) EXPECT_EQ(memory.used, memory.planned) << kind << inner;
    }
  const auto gathers = [&](std::string_view stack) {
    const RunResults found = run(stack, options);
    return std::ranges::count(found.inner_records, comm::Op::all_gather, &comm::Record::op);
  };
  EXPECT_EQ(gathers("hybrid:2/run-time"), 7 * 2);  // per pass: 5 units, and 3 blocks again except the last
  EXPECT_EQ(gathers("hybrid:2:no-reshard/run-time"), 5 * 2);
  EXPECT_EQ(gathers("hybrid:2:zero2/run-time"), 5);
}

}  // namespace
}  // namespace fsdp::test
