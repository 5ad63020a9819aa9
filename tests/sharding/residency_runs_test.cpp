// SPDX-License-Identifier: Apache-2.0
// Runs within a budget for gathered weights: their memory, the number of gathers, and bit-identical results.
#include <cstdint>
#include <map>
#include <string>

#include <gtest/gtest.h>

#include <support/small_llama.hpp>
#include <support/temporary_folder.hpp>

namespace fsdp::test {
namespace {

using Names = std::vector<std::string>;

/// Steps and an evaluation of a model with three blocks, each larger than embedding and head together.
RunOptions options_of(int ranks, int micro_batches) {
  RunOptions options = with_steps(2, uneven_options(ranks, micro_batches));
  options.fewer_sequences = false;
  options.evaluated = some_windows(static_cast<std::size_t>(options.most_sequences), options.sequence_length,
                                   options.config.vocab_size);
  return options;
}

std::int64_t gathered_memory(const RunResults& results) { return used_bytes(results, device::MemoryKind::gathered); }

/// The number of gathers of each group in the recorded passes, by group index.
std::map<int, int> gathers(const std::vector<comm::Record>& records) {
  std::map<int, int> counts;
  for (const comm::Record& record : records)
    if (record.label.what == "weights") ++counts[record.label.unit];
  return counts;
}

std::string with_budget(const std::string& strategy, std::int64_t bytes) {
  return strategy + ":budget=" + std::to_string(bytes);
}

void expect_the_same_bits(const RunResults& found, const RunResults& expected) {
  expect_same_bits(found, expected);
  EXPECT_EQ(found.first_evaluation, expected.first_evaluation);
  EXPECT_EQ(found.last_evaluation, expected.last_evaluation);
}

TEST(ResidencyRuns, StayWithinBudgetAndAreBitIdenticalToThePlainStrategy) {
  for (const std::string& strategy :
       sampled<std::string>({"fsdp2", "zero3", "fsdp2:prefetch=0", "hybrid:2", "hybrid:2:full", "zero3:persist=19"}))
    for (const int micro_batches : sampled({1, 3})) {
      const RunOptions options = options_of(2 * (1 + strategy.starts_with("hybrid")), micro_batches);
      const RunResults plain = run(strategy, options);
      const std::int64_t least = gathered_memory(plain);
      std::size_t collectives = plain.records.size() + plain.inner_records.size();
      for (const std::int64_t budget : {least, least * 3 / 2, least * 5 / 2}) {
        SCOPED_TRACE(message(strategy, ", ", micro_batches, " micro-batches, ", budget, " bytes"));
        const RunResults found = run(with_budget(strategy, budget), options);
        expect_the_same_bits(found, plain);
        EXPECT_LE(gathered_memory(found), budget);
        expect_planned_bytes(found);
        EXPECT_LE(found.records.size() + found.inner_records.size(), collectives);
        collectives = found.records.size() + found.inner_records.size();
      }
      EXPECT_LT(collectives, plain.records.size() + plain.inner_records.size());
    }
}

TEST(ResidencyRuns, WithPiecesAreBitIdenticalToPiecesWithoutABudget) {
  RunOptions options = options_of(2, 2);
  const RunResults plain = run("fsdp2:pieces=4/run-time", options);
  const RunResults found = run(with_budget("fsdp2", gathered_memory(plain) * 3 / 2) + ":pieces=4/run-time", options);
  expect_the_same_bits(found, plain);
  EXPECT_LT(found.records.size(), plain.records.size());
}

TEST(ResidencyRuns, OnAnAsynchronousDeviceAreBitIdenticalWithoutRaces) {
  if (sanitized) GTEST_SKIP() << "stacks on queues are not built under a sanitizer";
  const RunOptions options = options_of(2, 2);
  const RunResults plain = run("fsdp2/queued", options);
  const std::int64_t budget = gathered_memory(plain) * 3 / 2;
  const RunResults found = run(with_budget("fsdp2", budget) + "/queued", options);
  expect_the_same_bits(found, plain);
  EXPECT_EQ(found.races, Names{});
  EXPECT_LE(gathered_memory(found), budget);
  EXPECT_LT(found.records.size(), plain.records.size());
}

/// Groups: embedding 0, blocks 1 to 3, head 4. The slots of fsdp2 have the size of two blocks. With three blocks of
/// memory, one block and the last block stay gathered for the step, and the others, which are never adjacent, alternate
/// in one slot. With four, all groups stay gathered, since embedding and head are small.
TEST(ResidencyRuns, GatherAsOftenAsTheFormulas) {
  for (const int m : sampled({1, 3})) {
    RunOptions options = options_of(2, m);
    options.evaluated.clear();
    const RunResults plain = run("fsdp2", options);
    const std::int64_t block = gathered_memory(plain) / 2;
    const auto of_plain = gathers(plain.records);
    EXPECT_EQ(of_plain, (std::map<int, int>{{0, m}, {1, 2 * m}, {2, 2 * m}, {3, m}, {4, m}}));
    EXPECT_EQ(gathers(run(with_budget("fsdp2", 3 * block - 1), options).records).at(1), 2 * m);

    const RunResults three = run(with_budget("fsdp2", 3 * block), options);
    auto of_three = gathers(three.records);
    EXPECT_EQ(of_three[1] + of_three[2], 2 * m + 1);
    EXPECT_EQ(of_three[3], 1);
    EXPECT_EQ(of_three[0] + of_three[4], 2 * m);
    EXPECT_EQ(gathered_memory(three), 3 * block);

    const RunResults four = run(with_budget("fsdp2", 4 * block), options);
    EXPECT_EQ(gathers(four.records), (std::map<int, int>{{0, 1}, {1, 1}, {2, 1}, {3, 1}, {4, 1}}));
    EXPECT_LT(gathered_memory(four), 4 * block);
  }
}

TEST(ResidencyRuns, RefuseABudgetBelowOneUnitOnEveryRank) {
  EXPECT_INPUT_ERROR(run("fsdp2:budget=100", options_of(2, 1)),
                     "a budget of 100 bytes for gathered weights is too small; ");
  EXPECT_INPUT_ERROR(run("fsdp2:budget=auto", options_of(2, 1)), "give bytes, as in budget=512MiB");
}

}  // namespace
}  // namespace fsdp::test
