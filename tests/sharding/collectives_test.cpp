// SPDX-License-Identifier: Apache-2.0
// The collectives of a step as recorded by the communicator.
#include <algorithm>
#include <string>

#include <gtest/gtest.h>

#include <support/small_llama.hpp>

namespace fsdp::test {
namespace {

/// Lists collectives as "all_gather 0, ..." by unit or shared group, in the order in which they started.
std::string list_of(const std::vector<comm::Record>& records) {
  std::string text;
  for (const comm::Record& record : records) {
    const bool gathers = record.op == comm::Op::all_gather && record.label.what == "weights";
    const bool reduces = record.label.what == "gradients";
    EXPECT_TRUE(gathers || reduces) << comm::describe(record);
    text +=
        (text.empty() ? "" : ", ") + std::string(comm::name_of(record.op)) + " " + std::to_string(record.label.unit);
  }
  return text;
}

std::int64_t count(const std::vector<comm::Record>& records, comm::Op op, int unit) {
  return std::count_if(records.begin(), records.end(),
                       [&](const comm::Record& record) { return record.op == op && record.label.unit == unit; });
}

RunResults one_step(std::string_view stack, const RunOptions& options) { return run(stack, with_steps(1, options)); }

constexpr auto collectives_of_three_blocks =
    "all_gather 0, all_gather 1, all_gather 2, all_gather 3, all_gather 4, "
    "reduce_scatter 4, all_gather 2, reduce_scatter 3, all_gather 1, reduce_scatter 2, reduce_scatter 1";

TEST(Collectives, OfAStepOfThreeBlocksMatchTheHandWrittenList) {
  const std::string once = std::string(collectives_of_three_blocks) + ", reduce_scatter 0";
  for (const auto strategy : {"fsdp2", "zero3"}) {
    EXPECT_EQ(list_of(one_step(strategy, uneven_options(2)).records), once) << strategy;
    EXPECT_EQ(list_of(one_step(strategy, uneven_options(2, 2)).records),
              std::string(collectives_of_three_blocks) + ", all_gather 0, reduce_scatter 0, " +
                  once.substr(std::string("all_gather 0, ").size()));
  }
  for (const int micro_batches : {1, 3})
    EXPECT_EQ(list_of(one_step("replicated", uneven_options(2, micro_batches)).records),
              "all_reduce 4, all_reduce 3, all_reduce 2, all_reduce 1, all_reduce 0");
}

TEST(Collectives, GathersAndReductionsSendTheBytesOfTheirTensors) {
  const RunResults results = one_step("fsdp2", uneven_options(2));
  ASSERT_EQ(results.records.size(), 12u);
  EXPECT_EQ(results.records[0].bytes, 37 * 19 * 4);
  EXPECT_EQ(results.records[1].bytes, (2 * 19 + 18 * 19 + 2 * 6 * 19 + 19 * 18 + 3 * 29 * 19) * 4);
  EXPECT_EQ(results.records[4].bytes, (19 + 37 * 19) * 4);
  EXPECT_EQ(results.records.back().bytes, 37 * 19 * 4);
}

TEST(Collectives, Bf16GathersHalfTheBytesAndReducesInFloat) {
  const RunResults fp32 = one_step("fsdp2", uneven_options(2));
  const RunResults bf16 = one_step("fsdp2/bf16", uneven_options(2));
  expect_same_collectives(bf16, fp32, comm::Op::all_gather, 2);
}

TEST(Collectives, AnUntiedEmbeddingIsNeverGatheredInBackward) {
  for (const int micro_batches : {1, 2, 3})
    for (const auto strategy : {"fsdp2", "zero3"}) {
      const auto records = one_step(strategy, uneven_options(2, micro_batches)).records;
      EXPECT_EQ(count(records, comm::Op::all_gather, 0), micro_batches);
      EXPECT_EQ(count(records, comm::Op::all_gather, 1), 2 * micro_batches);
    }
}

TEST(Collectives, ATiedTableIsGatheredAndReducedOncePerMicroBatch) {
  constexpr int table = 4;  // after three blocks and the head; the embedding has no other group
  for (const int micro_batches : {1, 2}) {
    RunOptions options = uneven_options(2, micro_batches);
    options.config.tied = true;
    const auto records = one_step("fsdp2", options).records;
    EXPECT_EQ(count(records, comm::Op::all_gather, table), micro_batches);
    EXPECT_EQ(count(records, comm::Op::reduce_scatter, table), micro_batches);
    // gathers: blocks twice except the last, head, table; then 5 reductions
    EXPECT_EQ(std::ssize(records), (2 * 3 - 1 + 1 + 1 + 5) * micro_batches);
  }
}

TEST(Collectives, DoNotDependOnTheTileCount) {
  const auto untiled = list_of(one_step("fsdp2", uneven_options(2, 2)).records);
  for (const auto tiling :
       {tiling::RunTimeTiling::tiles(2), tiling::RunTimeTiling::tiles(5), tiling::RunTimeTiling::tokens(1)}) {
    RunOptions options = uneven_options(2, 2);
    options.tiling = tiling;
    EXPECT_EQ(list_of(one_step("fsdp2", options).records), untiled);
  }
}

TEST(Collectives, RanksWithDifferentTileCountsRunTheSameCollectives) {
  RunOptions options = uneven_options(3);
  options.tiling = tiling::RunTimeTiling::tokens(5);
  options.batch = [](const Place& place) { return some_windows(static_cast<std::size_t>(1 + 2 * place.rank), 7, 37); };
  options.most_sequences = 5;
  EXPECT_EQ(list_of(one_step("fsdp2", options).records),
            std::string(collectives_of_three_blocks) + ", reduce_scatter 0");
}

TEST(Collectives, OneRankSendsNothing) {
  for (const auto strategy : strategies) {
    const RunResults results = one_step(strategy, uneven_options(1));
    EXPECT_EQ(results.memory.front().copied_bytes, 0) << strategy;
    EXPECT_TRUE(results.records.empty()) << strategy;
  }
}

TEST(Collectives, GenerationGathersEveryGroupOnceAndKeepsIt) {
  for (const auto strategy : {"fsdp2", "zero3"}) {
    RunOptions options = uneven_options(2);
    options.logits_of = some_windows(3, 7, 37);
    const RunResults results = one_step(strategy, options);
    EXPECT_EQ(results.logits.size(), 3u);
    EXPECT_EQ(list_of(results.generating_records),
              "all_gather 0, all_gather 1, all_gather 2, all_gather 3, all_gather 4");
  }
}

}  // namespace
}  // namespace fsdp::test
