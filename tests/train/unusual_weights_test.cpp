// SPDX-License-Identifier: Apache-2.0
// Models whose blocks share one weight, read a weight only for some data, or have a weight without axes or elements.
#include <gtest/gtest.h>

#include <string>
#include <vector>

#include <tessera/comm/threads.hpp>
#include <tessera/fsdp/core/error.hpp>
#include <tessera/fsdp/sharding/run_time.hpp>
#include <tessera/fsdp/testing/report.hpp>
#include <tessera/fsdp/testing/temporary_folder.hpp>

#include <support/stacks/scaling_runs.hpp>

namespace fsdp::test {
namespace {

const RunTimeAny fsdp2{.strategy = FullyShard<>{}};

std::vector<RunTimeAny> sharded() {
  return {fsdp2,
          {.strategy = FullyShard<ReshardAfterForward::no>{}},
          {.strategy = Zero1{}},
          {.strategy = Zero2{}},
          {.strategy = Zero3{}},
          {.strategy = FullyShard<>{}, .other_layout = buffer::Flat{}},
          {.strategy = FullyShard<>{}, .other_layout = buffer::Owned{}}};
}

const char* name_of(ScaleKind kind) {
  constexpr const char* names[] = {"columns", "shared", "by data", "scalar", "empty"};
  return names[static_cast<int>(kind)];
}

class UnusualWeights : public ::testing::TestWithParam<ScaleKind> {};
INSTANTIATE_TEST_SUITE_P(, UnusualWeights,
                         ::testing::Values(ScaleKind::columns, ScaleKind::shared, ScaleKind::by_data, ScaleKind::scalar,
                                           ScaleKind::empty));

TEST_P(UnusualWeights, TrainTheSameUnderEveryStrategyWithPlannedMemory) {
  const auto train = [](const ScalingTask& task) {
    const ScalingRun result = train_scaling(task, 3);
    EXPECT_EQ(result.taken, result.planned);
    return result.losses;
  };
  const std::vector<double> expected = train({GetParam(), RunTimeAny{Replicated{}}});
  const auto near = [&](const std::string& what, const std::vector<double>& losses) {
    testing::expect_losses_near("the losses of replicated, within 1e-5", message(name_of(GetParam()), ", ", what),
                                losses, expected);
  };
  for (const RunTimeAny& strategy : sharded()) near(strategy.text(), train({GetParam(), strategy}));
  near("two blocks a unit", train({GetParam(), fsdp2, {.blocks_per_unit = 2}}));
  near("replicated blocks", train({GetParam(), fsdp2, {.replicated = {"blocks.*"}}}));
}

TEST_P(UnusualWeights, ResumeBitIdenticallyFromACheckpoint) {
  const testing::TemporaryFolder folder;
  const ScalingTask task{GetParam(), fsdp2};
  const std::vector<double> whole = train_scaling(task, 4).losses;
  train_scaling(task, 2, folder.path());
  EXPECT_EQ(train_scaling(task, 4, {}, folder.path()).losses, (std::vector<double>{whole[2], whole[3]}));
}

/// Finite differences change all replicas of a weight together; changing only one would give inconsistent replicas.
TEST_P(UnusualWeights, GradientsMatchFiniteDifferencesShardedAndReplicated) {
  const ScaleKind kind = GetParam();
  for (const RunTimeAny& strategy : {fsdp2, {.strategy = Zero1{}}, {.strategy = Zero3{}}})
    check_scaling_gradients(message(name_of(kind), ", 2 ranks, ", strategy.text()), 2, {kind, strategy});
  check_scaling_gradients(message(name_of(kind), ", 2 ranks, replicated"), 2, {kind, RunTimeAny{Replicated{}}});
  check_scaling_gradients(message(name_of(kind), ", 4 ranks, hybrid:2"), 4,
                          {kind, RunTimeAny{.strategy = HybridShard<RunTimeSharded>{.group = 2}}});
}

TEST(SharedWeights, FrozenSharedWeightsStayUnchangedAndTheOthersTrain) {
  comm::Threads<>::run(2, {.checks = true}, [](comm::Threads<>& communicator) {
    const ScalingTask task{ScaleKind::shared, fsdp2, {.frozen = {"blocks.scale"}}};
    auto [before, after] = step_scaling(communicator, task);
    EXPECT_EQ(after["blocks.scale"], before["blocks.scale"]);
    before.erase("blocks.scale");
    after.erase("blocks.scale");
    EXPECT_NE(after, before);
  });
}

}  // namespace
}  // namespace fsdp::test
