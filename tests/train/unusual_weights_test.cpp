// SPDX-License-Identifier: Apache-2.0
// Models whose blocks share one weight, read it only for some data, or have one without axes or elements.
#include <tessera/fsdp/training/training.hpp>

#include <gtest/gtest.h>

#include <string>
#include <vector>

#include <tessera/fsdp/sharding/run_time.hpp>
#include <tessera/fsdp/testing/model_runs.hpp>
#include <tessera/fsdp/testing/temporary_folder.hpp>

#include <support/scaling_model.hpp>

namespace fsdp::test {
namespace {

using testing::ModelTask;

template <class Sharding>
using Tested = ScalingModel<testing::ModelStack<Sharding>>;

template <class Sharding>
ModelTask<Tested<Sharding>, ScalingData> task_of(ScaleKind kind, const Sharding& sharding,
                                                 const UnitOptions& units = {}) {
  return {.config = {.kind = kind},
          .size = {.sequences = ScalingData::sequences,
                   .sequence_length = ScalingData::length,
                   .micro_batches = ScalingData::micro_batches,
                   .threads = 1},
          .sharding = sharding,
          .units = units};
}

const RunTimeSharded fsdp2{.strategy = FullyShard<>{}};

std::vector<RunTimeSharded> sharded() {
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

TEST_P(UnusualWeights, TrainAlikeUnderEveryStrategyAndTakeWhatWasPlanned) {
  const auto train = [](const auto& task) {
    const testing::ModelRunResult result = testing::train_model(2, task, {.steps = 3});
    EXPECT_EQ(result.taken, result.planned);
    return result.losses;
  };
  const std::vector<double> expected = train(task_of(GetParam(), Replicated{}));
  const auto near = [&](const std::string& what, const std::vector<double>& losses) {
    testing::expect_losses_near("the losses of replicated, within 1e-5", message(name_of(GetParam()), ", ", what),
                                losses, expected);
  };
  for (const RunTimeSharded& strategy : sharded()) near(strategy.text(), train(task_of(GetParam(), strategy)));
  near("two blocks a unit", train(task_of(GetParam(), fsdp2, {.blocks_per_unit = 2})));
  near("replicated blocks", train(task_of(GetParam(), fsdp2, {.replicated = {"blocks.*"}})));
}

TEST_P(UnusualWeights, GoOnFromACheckpointToTheBit) {
  const testing::TemporaryFolder folder;
  const auto task = task_of(GetParam(), fsdp2);
  const std::vector<double> whole = testing::train_model(2, task, {.steps = 4}).losses;
  testing::train_model(2, task, {.steps = 2, .save_to = folder.path()});
  EXPECT_EQ(testing::train_model(2, task, {.steps = 4, .resume = folder.path()}).losses,
            (std::vector<double>{whole[2], whole[3]}));
}

/// Replicas of a weight are moved together: one alone would be another model.
TEST_P(UnusualWeights, HaveTheDerivativesOfTheLossWhereTheyAreShardedAndWhereReplicated) {
  const ScaleKind kind = GetParam();
  for (const RunTimeSharded& strategy : {fsdp2, {.strategy = Zero1{}}, {.strategy = Zero3{}}})
    testing::check_model_gradients(message(name_of(kind), ", 2 ranks, ", strategy.text()), 2, task_of(kind, strategy));
  testing::check_model_gradients(message(name_of(kind), ", 2 ranks, replicated"), 2, task_of(kind, Replicated{}));
  testing::check_model_gradients(message(name_of(kind), ", 4 ranks, hybrid:2"), 4,
                                 task_of(kind, RunTimeGrouped{.strategy = HybridShard<RunTimeSharded>{.group = 2}}));
}

TEST(SharedWeights, ThatAreFrozenStayAndTheOthersTrain) {
  comm::Threads<>::run(2, {.checks = true}, [](comm::Threads<>& communicator) {
    const auto task = task_of(ScaleKind::shared, fsdp2, {.frozen = {"blocks.scale"}});
    train::Training<Tested<RunTimeSharded>> training(communicator, Tested<RunTimeSharded>(task.config, task.units),
                                                     task.size, task.sharding);
    training.initialize(3);
    const auto weights = [&](bool frozen) {
      std::vector<float> all;
      for (const auto& piece : training.module().shards())
        if ((piece.parameter->name == "blocks.scale") == frozen)
          all.insert(all.end(), piece.main.data(), piece.main.data() + piece.main.numel());
      return all;
    };
    const auto frozen = weights(true), trained = weights(false);
    const ScalingData data(communicator.rank(), task.config);
    training.step(data.batches, {.lr = 1e-2});
    EXPECT_EQ(weights(true), frozen);
    EXPECT_NE(weights(false), trained);
  });
}

}  // namespace
}  // namespace fsdp::test
