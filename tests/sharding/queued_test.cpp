// SPDX-License-Identifier: Apache-2.0
// On an asynchronous device, collectives and copies run beside computation. Events must order what touches the same
// memory, and there must be none too many.
#include <chrono>

#include <gtest/gtest.h>

#include <support/queued/cases.hpp>
#include <support/small_llama.hpp>

namespace fsdp::test {
namespace {

using Names = std::vector<std::string>;

std::string queued(const char* stack) { return std::string(stack) + "/queued"; }

RunOptions short_options(int ranks, int micro_batches) {
  RunOptions options = uneven_options(ranks, micro_batches);
  options.steps = 3;
  return options;
}

/// Block inputs go to host memory and come back, blocks are recomputed.
RunOptions offload_options(int ranks, int micro_batches, double share = 1) {
  RunOptions options = short_options(ranks, micro_batches);
  options.units.recompute = true;
  options.units.offload_inputs = share;
  return options;
}

class Queued : public ::testing::TestWithParam<QueuedCase> {};

TEST_P(Queued, GivesTheBitsOfTheCpuAndEveryAccessIsOrdered) {
  const auto [stack, ranks] = GetParam();
  for (const RunOptions& options : sampled({short_options(ranks, 1), short_options(ranks, 2),
                                            offload_options(ranks, 2, 0.3), offload_options(ranks, 2)})) {
    const RunResults expected = run(stack, options);
    const RunResults found = run(queued(stack), options);
    SCOPED_TRACE(
        message(options.micro_batches, " micro-batches", options.units.offload_inputs > 0 ? ", offloaded inputs" : ""));
    EXPECT_EQ(found.races, Names{});
    EXPECT_EQ(found.losses, expected.losses);
    EXPECT_EQ(found.norms, expected.norms);
    EXPECT_EQ(tensors_that_differ(found.weights, expected.weights), Names{});
    for (const Memory& memory : found.memory) {
      EXPECT_EQ(memory.used_offload, memory.planned_offload);
      EXPECT_EQ(memory.allocations_at_end, memory.allocations_after_first_step);
    }
  }
}

TEST_P(Queued, TheHostIsAStepAheadOfTheDevice) {
  const auto [stack, ranks] = GetParam();
  for (RunOptions options : {short_options(ranks, 2), offload_options(ranks, 1)}) {
    options.steps = 5;
    options.deadline = std::chrono::seconds(20);
    const RunResults expected = run(stack, options);
    options.reads_late = true;
    const RunResults found = run(queued(stack), options);
    EXPECT_EQ(found.races, Names{});
    EXPECT_EQ(found.losses, expected.losses);
    EXPECT_EQ(found.norms, expected.norms);
    EXPECT_EQ(tensors_that_differ(found.weights, expected.weights), Names{});
  }
}

TEST_P(Queued, NoEventCanBeLeftOut) {
  const auto [stack, ranks] = GetParam();
  RunOptions options = offload_options(ranks, 2);
  options.steps = 2;
  options.collects = false;
  options.check_only = true;
  const auto points = run(queued(stack), options).points;
  EXPECT_GT(points.size(), 10u);
  for (const auto& point : points) {
    options.leave_out = point;
    EXPECT_NE(run(queued(stack), options).races, Names{}) << "event " << point.front() << " is not needed";
  }
}

INSTANTIATE_TEST_SUITE_P(Strategies, Queued, ::testing::ValuesIn(queued_cases),
                         [](const auto& info) { return test_name(info.param.stack); });

}  // namespace
}  // namespace fsdp::test
