// SPDX-License-Identifier: Apache-2.0
// Training steps as graphs, on an asynchronous device that keeps CUDA's rules of capturing: a step waits for nothing of
// the one before, all its queues begin and end on one stream, and it finds its batch at the same place.
#include <algorithm>
#include <chrono>
#include <cstdint>
#include <string>
#include <vector>

#include <gtest/gtest.h>

#include <tessera/fsdp/testing/queued/queued_cpu.hpp>

#include <support/queued/cases.hpp>
#include <support/small_llama.hpp>

namespace fsdp::test {
namespace {

using Names = std::vector<std::string>;

/// Other tokens every step; the same ones are ignored.
RunOptions changing_options(int ranks, int micro_batches) {
  RunOptions options = uneven_options(ranks, micro_batches);
  options.steps = 5;
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

/// The same bits as without graphs; one graph for all steps but the first.
void expect_graphs(const std::string& stack, const std::string& queued, RunOptions options) {
  const bool over_nccl = queued == "/nccl";  // which adds up the ranks of a later micro-batch in an order of its own
  const RunResults expected = run(over_nccl ? stack + queued : stack, options);
  options.graphs = true;
  const RunResults found = run(stack + queued, options);
  EXPECT_EQ(found.races, Names{});
  EXPECT_EQ(found.captured, 1);
  EXPECT_EQ(found.launched, options.steps - 1);
  // The other run's first step collects its gradients, too.
  EXPECT_TRUE(
      std::equal(found.traffic.begin() + 1, found.traffic.end(), expected.traffic.begin() + 1, expected.traffic.end()));
  EXPECT_EQ(found.losses, expected.losses);
  EXPECT_EQ(found.norms, expected.norms);
  EXPECT_EQ(found.last_evaluation, expected.last_evaluation);
  EXPECT_EQ(tensors_that_differ(found.weights, expected.weights), Names{});
  EXPECT_EQ(tensors_that_differ(found.states, expected.states), Names{});
}

class Graphs : public ::testing::TestWithParam<QueuedCase> {};

TEST_P(Graphs, OfAllRanksGiveTheBitsOfStepsThatAreQueued) {
  const auto [stack, ranks] = GetParam();
  expect_graphs(stack, "/nccl", changing_options(ranks, 2));
}

INSTANTIATE_TEST_SUITE_P(Strategies, Graphs, ::testing::ValuesIn(queued_cases),
                         [](const auto& info) { return test_name(info.param.stack); });

TEST(GraphsOfOneRank, GiveTheBitsOfTheCpuWhileTheHostIsAStepAhead) {
  for (const bool far : {false, true}) {
    RunOptions options = changing_options(1, 2);
    options.units = {.recompute = far, .offload_inputs = far ? 1.0 : 0.0};
    options.reads_late = true;
    options.deadline = std::chrono::seconds(20);
    expect_graphs("fsdp2", "/queued", options);
  }
}

TEST(GraphsOfOneRank, AreRefusedWhereAStepIsNotLikeTheOthers) {
  RunOptions options = changing_options(1, 1);
  options.batch = [deal = options.batch](const Place& place) {
    std::vector<Window> windows = deal(place);
    if (place.step >= 3) windows.front().targets.front() = -1;
    return windows;
  };
  options.graphs = true;
  EXPECT_THROW(run("fsdp2/queued", options), LogicError) << "a target more is ignored";
}

TEST(GraphsOfOneRank, AreRefusedWhereNothingKeepsThem) {
  RunOptions options = changing_options(2, 1);
  options.graphs = true;
  EXPECT_THROW(run("fsdp2", options), InputError) << "a CPU";
  EXPECT_THROW(run("fsdp2/queued", options), InputError) << "hosts take part in collectives";
}

/// What CUDA refuses, and what it would leave out of a graph without a word.
TEST(Capture, RefusesWhatNoGraphCanHold) {
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

}  // namespace
}  // namespace fsdp::test
