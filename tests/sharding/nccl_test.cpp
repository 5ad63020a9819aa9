// SPDX-License-Identifier: Apache-2.0
// All strategies over a double of NCCL: what they call is what NCCL takes, the same on all ranks, and nothing is left
// to chance.
#include <gtest/gtest.h>

#include <support/any_strategy.hpp>
#include <support/small_llama.hpp>

namespace fsdp::test {
namespace {

using Names = std::vector<std::string>;

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

/// Strategies under which the contributions of ranks are added in their order, whatever NCCL would do.
const Case cases_in_pieces[] = {{"fsdp2:pieces=6", {1, 3, 4}}, {"zero2:pieces=6", {2, 8}}, {"zero3:pieces=6", {5}}};

class OverNccl : public ::testing::TestWithParam<Case> {};

TEST_P(OverNccl, GivesTheBitsOfThreads) {
  for (const int ranks : GetParam().ranks) {
    SCOPED_TRACE(ranks);
    // NCCL adds up the ranks, and the sum is added to that of the micro-batch before: threads add rank after rank.
    const int pieces = std::visit([](const auto& strategy) { return sharding::facts_of(strategy).pieces; },
                                  any_strategy(GetParam().stack));
    RunOptions options = uneven_options(ranks, pieces > 0 ? sharding::micro_batches_of(pieces, ranks) : 1);
    options.steps = 2;
    const RunResults expected = run(std::string(GetParam().stack) + (pieces > 0 ? "/run-time" : ""), options);
    const RunResults found = run(std::string(GetParam().stack) + "/nccl", options);
    EXPECT_EQ(found.races, Names{});
    EXPECT_EQ(found.losses, expected.losses);
    EXPECT_EQ(found.norms, expected.norms);
    EXPECT_EQ(tensors_that_differ(found.weights, expected.weights), Names{});

    options.units = {.recompute = true, .offload_inputs = 1};
    const RunResults far = run(std::string(GetParam().stack) + "/nccl", options);
    EXPECT_EQ(far.races, Names{});
    EXPECT_EQ(far.losses, expected.losses);
    EXPECT_EQ(tensors_that_differ(far.weights, expected.weights), Names{});
  }
}

INSTANTIATE_TEST_SUITE_P(Strategies, OverNccl, ::testing::ValuesIn(cases),
                         [](const auto& info) { return test_name(info.param.stack); });
INSTANTIATE_TEST_SUITE_P(InPieces, OverNccl, ::testing::ValuesIn(cases_in_pieces),
                         [](const auto& info) { return test_name(info.param.stack); });

}  // namespace
}  // namespace fsdp::test
