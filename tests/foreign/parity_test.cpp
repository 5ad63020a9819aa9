// SPDX-License-Identifier: Apache-2.0
// User-defined networks train over ranks bit-identically to a plain loop without the library.
#include <gtest/gtest.h>

#include "runs.hpp"

namespace fsdp::foreign {
namespace {

using plain::Reduce;

void expect_parity(const Network& network, const Request& base, const std::vector<Case>& cases) {
  with_expected(network, base, cases, [&](const Request& request, const Outcome& expected) {
    SCOPED_TRACE(message(network.name, ", ", text_of(request.strategy), ", ", request.ranks, " ranks, ",
                         request.micro_batches.front(), " micro-batches"));
    const Outcome found = train_sharded(network, request);
    expect_same(found, expected);
    expect_clipping(found, request.clip);
  });
}

TEST(ForeignLoop, IsBitIdenticalToThePlainLoop) {
  for (const Network& network : networks())
    for (const int ranks : {1, 2, 3, 4})
      for (const int count : {1, 2, 3})
        expect_parity(network, {.ranks = ranks, .micro_batches = std::vector(4, count)}, cases_of_one_axis());
}

TEST(ForeignLoop, IsBitIdenticalWithFewerMicroBatchesThanPlanned) {
  for (const Network& network : networks())
    for (const int ranks : {1, 3})
      expect_parity(network, {.ranks = ranks, .micro_batches = {3, 1, 2, 3}}, cases_of_one_axis());
}

TEST(ForeignLoop, IsBitIdenticalToThePlainLoopOnTwoAxes) {
  for (const Network& network : networks())
    for (const int count : {1, 2})
      expect_parity(network, {.ranks = 4, .micro_batches = std::vector(4, count)}, cases_of_two_axes());
}

TEST(ForeignLoop, IsBitIdenticalToThePlainLoopWithoutFixedSlots) {
  for (const Network& network : networks())
    expect_parity(network, {.ranks = 3, .micro_batches = {2, 2, 2}, .fixed_slots = false}, cases_of_one_axis());
}

TEST(LoopWithoutTheLibrary, ResultsDependOnTheOrderOfGradientSums) {
  for (const Network& network : networks()) {
    const Request request{.ranks = 4, .micro_batches = {2, 2, 2, 2}};
    const Outcome outcomes[] = {train_plain<float>(network, request, Reduce::every_micro_batch),
                                train_plain<float>(network, request, Reduce::last_micro_batch),
                                train_plain<float>(network, request, Reduce::every_micro_batch, 2)};
    EXPECT_NE(outcomes[0].weights, outcomes[1].weights) << network.name;
    EXPECT_NE(outcomes[0].weights, outcomes[2].weights) << network.name;
    EXPECT_NE(outcomes[1].weights, outcomes[2].weights) << network.name;
  }
}

TEST(ForeignLoop, IsBitIdenticalInBf16UnderEveryStrategy) {
  for (const Network& network : networks())
    for (const int ranks : {2, 3}) {
      Request request{.ranks = ranks, .strategy = RunTimeAny{FullyShard<>{}}, .precision = In::bf16};
      const Outcome expected = train_sharded(network, request);
      EXPECT_GT(difference(expected, train_plain<float>(network, request, Reduce::every_micro_batch)), 1e-4);
      for (const AnyStrategy& strategy : {AnyStrategy(RunTimeAny{Zero3{}}), AnyStrategy(RunTimeAny{Zero1{}}),
                                          AnyStrategy(RunTimeAny{Replicated{}})}) {
        request.strategy = strategy;
        SCOPED_TRACE(message(network.name, ", ", text_of(strategy), ", ", ranks, " ranks"));
        expect_same(train_sharded(network, request), expected);
      }
    }
}

TEST(LoopWithoutTheLibrary, MatchesTheFloat64LoopWithinOneMillionth) {
  for (const Network& network : networks())
    for (const Reduce reduce : {Reduce::every_micro_batch, Reduce::last_micro_batch}) {
      const Request request{.ranks = 3, .micro_batches = {2, 2, 2, 2}};
      const double error =
          difference(train_plain<float>(network, request, reduce), train_plain<double>(network, request, reduce));
      EXPECT_LT(error, 1e-6) << network.name;
      EXPECT_GT(error, 0) << network.name;
    }
}

TEST(LoopWithoutTheLibrary, Learns) {
  for (const Network& network : networks()) {
    const Request request{.ranks = 2, .micro_batches = std::vector(40, 1)};
    const Outcome outcome = train_plain<float>(network, request, Reduce::every_micro_batch);
    EXPECT_LT(outcome.losses.back(), 0.8 * outcome.losses.front()) << network.name;
  }
}

}  // namespace
}  // namespace fsdp::foreign
