// SPDX-License-Identifier: Apache-2.0
// On an asynchronous device, collectives and copies overlap with computation. Events must order all accesses to the
// same memory, and no event may be redundant.
#include <algorithm>
#include <chrono>
#include <cstdint>
#include <string>
#include <vector>

#include <gtest/gtest.h>

#include <support/any_strategy.hpp>
#include <support/nccl/queued.hpp>
#include <support/queued/cases.hpp>
#include <support/small_llama.hpp>
#include <tessera/fsdp/testing/queued/queued_cpu.hpp>

namespace fsdp::test {
namespace {

using Names = std::vector<std::string>;

std::string queued(const char* stack) { return std::string(stack) + "/queued"; }

RunOptions short_options(int ranks, int micro_batches) { return with_steps(3, uneven_options(ranks, micro_batches)); }

/// Block inputs are offloaded to host memory and fetched again; blocks are recomputed.
RunOptions offload_options(int ranks, int micro_batches, double share = 1) {
  RunOptions options = short_options(ranks, micro_batches);
  options.units.recompute = true;
  options.units.offload_inputs = share;
  return options;
}

class Queued : public ::testing::TestWithParam<QueuedCase> {};

TEST_P(Queued, IsBitIdenticalToTheCpuAndFreeOfRaces) {
  const auto [stack, ranks] = GetParam();
  for (const RunOptions& options : sampled({short_options(ranks, 1), short_options(ranks, 2),
                                            offload_options(ranks, 2, 0.3), offload_options(ranks, 2)})) {
    const RunResults expected = run(stack, options);
    const RunResults found = run(queued(stack), options);
    SCOPED_TRACE(
        message(options.micro_batches, " micro-batches", options.units.offload_inputs > 0 ? ", offloaded inputs" : ""));
    EXPECT_EQ(found.races, Names{});
    expect_same_bits(found, expected);
    EXPECT_EQ(found.norms, expected.norms);
    for (const Memory& memory : found.memory) {
      EXPECT_EQ(memory.used_offload, memory.planned_offload);
      EXPECT_EQ(memory.allocations_at_end, memory.allocations_after_first_step);
    }
  }
}

TEST_P(Queued, TheHostCanRunOneStepAheadOfTheDevice) {
  const auto [stack, ranks] = GetParam();
  for (RunOptions options : {short_options(ranks, 2), offload_options(ranks, 1)}) {
    options.steps = 5;
    options.deadline = std::chrono::seconds(20);
    const RunResults expected = run(stack, options);
    options.reads_late = true;
    const RunResults found = run(queued(stack), options);
    EXPECT_EQ(found.races, Names{});
    expect_same_bits(found, expected);
    EXPECT_EQ(found.norms, expected.norms);
  }
}

TEST_P(Queued, OmittingAnyEventCausesARace) {
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

// Training steps as graphs, on an asynchronous device with CUDA's rules for graph capture: a step does not wait for
// events of the previous step, all its queues fork from and join one stream, and its batch is always at the same
// address.

/// Tokens change in every step; the positions of ignored targets stay the same.
RunOptions changing_options(int ranks, int micro_batches) {
  RunOptions options = with_steps(5, uneven_options(ranks, micro_batches));
  const auto vocabulary = static_cast<std::int32_t>(options.config.vocab_size);
  options.batch = [deal = options.batch, vocabulary](const Place& place) {
    std::vector<Window> windows = deal(place);
    const auto shift = [&](std::int32_t token) { return token < 0 ? token : (token + 3 * place.step) % vocabulary; };
    for (Window& window : windows) {
      std::transform(window.tokens.begin(), window.tokens.end(), window.tokens.begin(), shift);
      std::transform(window.targets.begin(), window.targets.end(), window.targets.begin(), shift);
    }
    return windows;
  };
  options.evaluated = some_windows(2, options.sequence_length, vocabulary);
  return options;
}

/// Expects results bit-identical to a run without graphs, and one graph for all steps except the first.
void expect_graphs(const std::string& stack, const std::string& queued, RunOptions options) {
  const bool over_nccl = queued == "/nccl";  // NCCL sums later micro-batches over ranks in a different order
  const RunResults expected = run(over_nccl ? stack + queued : stack, options);
  options.graphs = true;
  const RunResults found = run(stack + queued, options);
  EXPECT_EQ(found.races, Names{});
  EXPECT_EQ(found.captured, 1);
  EXPECT_EQ(found.launched, options.steps - 1);
  // The first step of the other run also collects its gradients.
  EXPECT_TRUE(
      std::equal(found.traffic.begin() + 1, found.traffic.end(), expected.traffic.begin() + 1, expected.traffic.end()));
  EXPECT_EQ(found.losses, expected.losses);
  EXPECT_EQ(found.norms, expected.norms);
  EXPECT_EQ(found.last_evaluation, expected.last_evaluation);
  expect_same_tensors(found.weights, expected.weights);
  expect_same_tensors(found.states, expected.states);
}

class Graphs : public ::testing::TestWithParam<QueuedCase> {};

TEST_P(Graphs, OfAllRanksAreBitIdenticalToQueuedSteps) {
  const auto [stack, ranks] = GetParam();
  expect_graphs(stack, "/nccl", changing_options(ranks, 2));
}

INSTANTIATE_TEST_SUITE_P(Strategies, Graphs, ::testing::ValuesIn(queued_cases),
                         [](const auto& info) { return test_name(info.param.stack); });

TEST(GraphsOfOneRank, AreBitIdenticalToTheCpuWithTheHostOneStepAhead) {
  for (const bool far : {false, true}) {
    RunOptions options = changing_options(1, 2);
    options.units = {.recompute = far, .offload_inputs = far ? 1.0 : 0.0};
    options.reads_late = true;
    options.deadline = std::chrono::seconds(20);
    expect_graphs("fsdp2", "/queued", options);
  }
}

TEST(GraphsOfOneRank, RefuseAStepThatDiffersFromTheCapturedOne) {
  RunOptions options = changing_options(1, 1);
  options.batch = [deal = options.batch](const Place& place) {
    std::vector<Window> windows = deal(place);
    if (place.step >= 3) windows.front().targets.front() = -1;
    return windows;
  };
  options.graphs = true;
  EXPECT_THROW(run("fsdp2/queued", options), LogicError) << "a target more is ignored";
}

TEST(GraphsOfOneRank, AreRefusedOnDevicesAndCommunicatorsWithoutCapture) {
  RunOptions options = changing_options(2, 1);
  options.graphs = true;
  EXPECT_THROW(run("fsdp2", options), InputError) << "a CPU";
  EXPECT_THROW(run("fsdp2/queued", options), InputError) << "hosts take part in collectives";
}

/// Operations that CUDA refuses during capture, and operations that it would silently omit from a graph.
TEST(Capture, RefusesOperationsThatCannotBeCaptured) {
  using testing::QueuedEvent;
  using testing::WorkGraph;
  using testing::WorkQueue;
  WorkQueue first("first"), second("second");
  const auto nothing = [](WorkQueue& queue) { queue.submit("nothing", {}, [](auto&) {}); };
  nothing(second);
  const QueuedEvent before = second.record();
  EXPECT_THROW(first.capture([&] { first.wait(before); }), Error) << "an event of before";
  EXPECT_THROW(first.capture([&] { nothing(second); }), Error) << "a queue that is no part of it";
  EXPECT_THROW(first.capture([&] { first.record().happened(); }), Error) << "the host asks";
  EXPECT_THROW(first.capture([&] { second.synchronize(); }), Error) << "the host waits";
  EXPECT_THROW(first.capture([&] {
    second.wait(first.record());
    nothing(second);
  }),
               Error)
      << "a queue that nobody waits for";
  QueuedEvent inside;
  int done = 0;
  const WorkGraph graph = first.capture([&] {
    second.wait(first.record());
    second.submit("count", {}, [&](auto&) { ++done; });
    inside = second.record();
    first.wait(inside);
  });
  EXPECT_THROW(first.wait(inside), Error) << "an event of a graph";
  graph.launch(first);
  graph.launch(first);
  first.synchronize();
  EXPECT_EQ(done, 2);
}

// All strategies over a fake NCCL: all calls are valid NCCL calls and the same on all ranks, and results are
// deterministic.

struct Case {
  const char* stack;
  std::vector<int> ranks;
};

const Case cases[] = {{"fsdp2", {1, 3, 8}},      {"fsdp2:no-reshard", {2, 5}},
                      {"fsdp2:prefetch=2", {4}}, {"zero1", {2, 7}},
                      {"zero2", {3, 6}},         {"zero3", {2, 5}},
                      {"zero3:persist=20", {3}}, {"replicated", {1, 2, 8}},
                      {"fsdp2:2", {4, 6}},       {"hybrid:2", {4, 8}},
                      {"hybrid:2:full", {4, 6}}};

/// Strategies that sum the contributions of ranks in rank order, independently of NCCL's order.
const Case cases_in_pieces[] = {{"fsdp2:pieces=6", {1, 3, 4}}, {"zero2:pieces=6", {2, 8}}, {"zero3:pieces=6", {5}}};

class OverNccl : public ::testing::TestWithParam<Case> {};

TEST_P(OverNccl, IsBitIdenticalToThreadsIfNcclAddsInRankOrder) {
  const testing::NcclSums sums(testing::NcclSums::in_rank_order);
  for (const int ranks : GetParam().ranks) {
    SCOPED_TRACE(ranks);
    // NCCL sums over ranks first and adds this sum to that of earlier micro-batches; threads add rank after rank.
    // Therefore one micro-batch is used without pieces.
    const int pieces = std::visit([](const auto& strategy) { return sharding::facts_of(strategy).pieces; },
                                  any_strategy(GetParam().stack));
    RunOptions options =
        with_steps(2, uneven_options(ranks, pieces > 0 ? sharding::micro_batches_of(pieces, ranks) : 1));
    const RunResults expected = run(std::string(GetParam().stack) + (pieces > 0 ? "/run-time" : ""), options);
    const RunResults found = run(std::string(GetParam().stack) + "/nccl", options);
    EXPECT_EQ(found.races, Names{});
    expect_same_bits(found, expected);
    EXPECT_EQ(found.norms, expected.norms);

    options.units = {.recompute = true, .offload_inputs = 1};
    const RunResults far = run(std::string(GetParam().stack) + "/nccl", options);
    EXPECT_EQ(far.races, Names{});
    expect_same_bits(far, expected);
  }
}

/// Two runs are bit-identical if NCCL's order is fixed, as with NVLS off, or if steps are cut into pieces.
TEST(OverNcclTwice, PromisesNeedTheirSettings) {
  for (const QueuedCase& one : {QueuedCase{"fsdp2", 3}, QueuedCase{"replicated", 3}, QueuedCase{"hybrid:2", 6},
                                QueuedCase{"fsdp2:pieces=3", 3}}) {
    SCOPED_TRACE(one.stack);
    const auto repeats = [&](testing::NcclSumOrder order) {
      const testing::NcclSums sums(order);
      const std::string stack = message(one.stack, "/nccl");
      const RunOptions options = with_steps(2, uneven_options(one.ranks));
      return run(stack, options).weights == run(stack, options).weights;
    };
    EXPECT_TRUE(repeats(testing::NcclSums::in_fixed_order));
    EXPECT_EQ(repeats(testing::NcclSums::in_changing_order),
              std::string_view(one.stack).find("pieces") != std::string_view::npos);
  }
}

INSTANTIATE_TEST_SUITE_P(Strategies, OverNccl, ::testing::ValuesIn(cases),
                         [](const auto& info) { return test_name(info.param.stack); });
INSTANTIATE_TEST_SUITE_P(InPieces, OverNccl, ::testing::ValuesIn(cases_in_pieces),
                         [](const auto& info) { return test_name(info.param.stack); });

}  // namespace
}  // namespace fsdp::test
