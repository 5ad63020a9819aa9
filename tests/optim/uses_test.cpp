// SPDX-License-Identifier: Apache-2.0
// Units that are used several times, by some data only, or never. Units without tensors, tensors without axes or
// elements, hundreds of units, several objects on one communicator.
#include <gtest/gtest.h>

#include <algorithm>
#include <map>
#include <numeric>
#include <string>
#include <vector>

#include <tessera/fsdp/testing/report.hpp>

#include <support/nets.hpp>
#include <support/temporary_folder.hpp>

namespace fsdp::test {
namespace {

using net::Loop;
using sharding::Action;

/// The result of three steps.
struct Trained {
  std::vector<double> losses;
  std::map<std::string, net::Values> weights;
  PlannedBytes planned, held;
};

template <class Sharding>
Trained train(const std::vector<Unit>& units, const Loop& run, int ranks, const Sharding& strategy,
              const UnitOptions& unit_options = {}) {
  return of_first_rank(ranks, [&](Comm& communicator) {
    Initialized<Sharding> sharded(
        communicator, units, strategy,
        {.orders = {mirrored(run.uses)}, .micro_batches = run.micro_batches, .unit_options = unit_options});
    const Trained mine{.losses = net::steps(sharded, run, 3),
                       .weights = net::weights(sharded),
                       .planned = sharded.planned(),
                       .held = sharded.held()};
    EXPECT_EQ(mine.held.bytes, mine.planned.bytes);
    return mine;
  });
}

/// Expects that all strategies match `replicated`; those with the same order of sums are bit-identical.
void expect_the_same_everywhere(const std::vector<Unit>& units, const Loop& run, int ranks = 2) {
  const Trained replicas = train(units, run, ranks, Replicated{});
  const Trained first = train(units, run, ranks, RunTimeAny{.strategy = FullyShard<>{}});
  testing::expect_losses_near("shards follow replicas", "FullyShard", first.losses, replicas.losses);
  for (const RunTimeAny& strategy : sharded_strategies()) {
    SCOPED_TRACE(strategy.text());
    const Trained found = train(units, run, ranks, strategy);
    const bool each_micro_batch = strategy.rules().reduce_every_micro_batch;
    const Trained& same = each_micro_batch ? first : replicas;
    EXPECT_EQ(found.losses, same.losses);
    EXPECT_EQ(found.weights, same.weights);
  }
}

void expect_derivatives(const std::vector<Unit>& units, const Loop& run) {
  const auto check = [&]<class Sharding>(const Sharding& strategy, int ranks) {
    on_ranks(ranks, [&](Comm& communicator) {
      Initialized<Sharding> sharded(communicator, units, strategy,
                                    {.orders = {mirrored(run.uses)}, .micro_batches = run.micro_batches});
      net::check_gradients(sharded, run, [&](const std::string& name, double gradient, double expected) {
        EXPECT_NEAR(gradient, expected, 1e-2 * std::abs(expected) + 2e-2) << name << " under " << policy_text(strategy);
      });
    });
  };
  for (const RunTimeAny& strategy : sharded_strategies()) check(strategy, 2);
  check(Replicated{}, 2);
  check(RunTimeAny{.strategy = HybridShard<RunTimeSharded>{.group = 2}}, 4);
}

const std::vector<int> several = {0, 1, 1, 2, 1};

TEST(UnitUsedSeveralTimes, AccumulatesItsGradientsUnderEveryStrategy) {
  const Loop run{.uses = several, .micro_batches = 3};
  expect_derivatives(net::units(3), run);
  expect_the_same_everywhere(net::units(3), run, 3);
}

TEST(UnitUsedSeveralTimes, IsReducedOncePerMicroBatchAfterTheLastUse) {
  on_ranks(2, [](Comm& communicator) {
    Net<RunTimeAny> sharded(communicator, net::units(3), {.strategy = FullyShard<>{}},
                            {.orders = {mirrored(several)}, .micro_batches = 2});
    int left = 0, reductions = 0;
    for (const sharding::Task& task : sharded.module().schedule(sharding::Pass::train)) {
      if (task.index != 1) continue;
      if (task.action == Action::forward) left = 3;
      if (task.action == Action::backward) --left;
      if (task.action != Action::reduce) continue;
      EXPECT_EQ(left, 0) << "a gradient is still to come";
      ++reductions;
    }
    EXPECT_EQ(reductions, 2);
  });
}

/// This keeps pointers valid that an autograd engine saved in forward and uses in backward.
TEST(UnitUsedSeveralTimes, KeepsItsAddressInAllUsesOfAPass) {
  on_ranks(2, [](Comm& communicator) {
    Initialized<RunTimeAny> sharded(communicator, net::units(3), {.strategy = FullyShard<>{}},
                                    {.orders = {mirrored(several)}});
    std::map<int, const float*> address;
    auto pass = sharded.train();
    while (pass.next()) {
      auto use = pass.enter();
      const float* const here = use.weight(0).data();
      EXPECT_EQ(address.emplace(use.task().index, here).first->second, here);
    }
    pass.finish();
  });
}

/// Tensors that several units declare are one tensor: three units that share it train like one unit that is used three
/// times.
TEST(TensorsOfSeveralUnits, EqualOneUnitUsedSeveralTimes) {
  std::vector<Unit> tied = net::units(3);
  for (Unit& unit : tied) unit.parameters = net::unit("shared").parameters;
  const Loop in_turn{.uses = {0, 1, 2}, .micro_batches = 2}, again{.uses = {0, 0, 0}, .micro_batches = 2};
  const RunTimeAny strategy{.strategy = FullyShard<>{}};
  const Trained of_three = train(tied, in_turn, 2, strategy), of_one = train({net::unit("shared")}, again, 2, strategy);
  EXPECT_EQ(of_three.losses, of_one.losses);
  EXPECT_EQ(of_three.weights, of_one.weights);
  EXPECT_EQ(of_three.weights.size(), 2u);
  expect_the_same_everywhere(tied, in_turn);
}

/// Only some ranks and micro-batches use the middle unit.
bool by_data(const net::Values& x, int unit) { return unit != 1 || x[0] > 0; }

TEST(UnitThatSomeDataUse, AccumulatesGradientsOnlyFromDataThatUseIt) {
  const Loop run{.uses = {0, 1, 2}, .micro_batches = 3, .looks = by_data};
  expect_derivatives(net::units(3), run);
  expect_the_same_everywhere(net::units(3), run);
}

TEST(UnitThatSomeDataUse, HasAZeroGradientIfNoDataUseIt) {
  const Loop run{.uses = {0, 1, 2}, .looks = [](const net::Values&, int unit) { return unit != 1; }};
  on_ranks(3, [&](Comm& communicator) {
    Initialized<RunTimeAny> sharded(communicator, net::units(3), {.strategy = Zero3{}});
    net::train(sharded, run);
    for (const auto& piece : sharded.shards()) {
      if (!piece.parameter->name.starts_with("unit1")) continue;
      EXPECT_EQ(std::count(piece.gradient.data(), piece.gradient.data() + piece.main.numel(), 0.0f),
                piece.main.numel());
    }
  });
}

TEST(FrozenUnit, MayBeOmittedFromAllOrdersAndStaysUnchanged) {
  on_ranks(2, [](Comm& communicator) {
    Initialized<RunTimeAny> sharded(communicator, net::units(3), {.strategy = FullyShard<>{}},
                                    {.orders = {mirrored(std::vector{0, 2})}, .unit_options = {.frozen = {"unit1.*"}}});
    const auto before = net::weights(sharded, {"unit1.*"});
    net::steps(sharded, {.uses = {0, 2}}, 2);
    EXPECT_EQ(net::weights(sharded, {"unit1.*"}), before);
    for (const sharding::Task& task : sharded.module().schedule(sharding::Pass::train))
      EXPECT_FALSE(task.action == Action::gather && task.index == 1);
  });
}

TEST(FrozenUnit, TakesNoMemoryForGradientsAndOptimizerStates) {
  const auto bytes = [](const std::vector<Unit>& units, const UnitOptions& options, device::MemoryKind kind) {
    return Net<RunTimeAny>::plan(2, 0, units, {.strategy = FullyShard<>{}}, {.unit_options = options})
        .bytes[static_cast<std::size_t>(kind)];
  };
  std::vector<Unit> others = net::units(3);
  others.erase(others.begin() + 1);
  for (const auto kind : {device::MemoryKind::gradients, device::MemoryKind::optimizer})
    EXPECT_EQ(bytes(net::units(3), {.frozen = {"unit1.*"}}, kind), bytes(others, {}, kind));
}

/// Units without tensors, a tensor without axes, a tensor without elements.
TEST(OddTensors, ScalarAndEmptyTensorsTrainUnderEveryStrategyAndLayout) {
  const std::vector<std::vector<Parameter>> kinds = {
      {}, {{.name = "odd", .shape = Shape{}}}, {{.name = "odd", .shape = {0, 8}}}};
  for (const auto& parameters : kinds) {
    SCOPED_TRACE(parameters.empty() ? "none" : message(parameters[0].shape.rank, " axes"));
    std::vector<Unit> units = net::units(3);
    units[1].parameters = parameters;
    const Loop run{.uses = {0, 1, 2}, .micro_batches = 2};
    expect_the_same_everywhere(units, run);
    const Trained expected = train(units, run, 2, RunTimeAny{.strategy = FullyShard<>{}});
    for (const buffer::AnyLayout& layout :
         {buffer::AnyLayout(buffer::Flat{}), {buffer::Owned{}}, {buffer::Rows{}}, {buffer::Blocks{}}})
      EXPECT_EQ(train(units, run, 2, RunTimeAny{.strategy = FullyShard<>{}, .other_layout = layout}).weights,
                expected.weights);
  }
}

TEST(HundredsOfUnits, AreBitIdenticalToReplicasWithinPlannedMemory) {
  const int count = 100;
  Loop run{.uses = std::vector<int>(count)};
  std::iota(run.uses.begin(), run.uses.end(), 0);
  const std::vector<Unit> units = net::units(count);
  const Trained replicas = train(units, run, 2, Replicated{});
  for (const RunTimeAny& strategy : {RunTimeAny{.strategy = FullyShard<>{}}, {.strategy = Zero1{}}})
    EXPECT_EQ(train(units, run, 2, strategy).losses, replicas.losses) << strategy.text();
}

/// Evaluates before a step, between its pass and its update, and after it. The loss of a micro-batch equals the
/// training loss.
TEST(Evaluation, AlternatingWithStepsMatchesTrainingLosses) {
  const Loop chain{.uses = {0, 1, 2, 3}};
  std::vector<std::vector<double>> all;
  const auto check = [&](const RunTimeAny& strategy) {
    SCOPED_TRACE(policy_text(strategy));
    all.push_back(of_first_rank(2, [&](Comm& communicator) {
      Initialized<RunTimeAny> sharded(communicator, net::units(4), strategy);
      std::vector<double> losses;
      Loop run = chain;
      for (; run.step < 3; ++run.step) {
        const double before = net::evaluate(sharded, run), loss = net::train(sharded, run);
        EXPECT_EQ(before, loss);
        EXPECT_EQ(net::evaluate(sharded, run), loss) << "before the update";
        losses.push_back(sharded.step(loss, {.lr = 1e-2}).loss);
        EXPECT_LT(net::evaluate(sharded, run), loss) << "after the update";
      }
      return losses;
    }));
  };
  for (const int depth : {0, 1, 2, 3}) {
    check({.strategy = FullyShard<>{.prefetch_depth = depth}});
    check({.strategy = FullyShard<ReshardAfterForward::no>{.prefetch_depth = depth}});
    check({.strategy = Zero3{.prefetch_depth = depth}});
  }
  for (const auto& losses : all) EXPECT_EQ(losses, all.front());
}

/// Two networks of different sizes whose computations alternate, and a third network that is only evaluated.
TEST(SeveralObjects, OnOneCommunicatorAreBitIdenticalToEachAlone) {
  const Loop large{.uses = {0, 1, 2}, .micro_batches = 1}, small{.uses = {0, 1}};
  const auto made = [](Comm& communicator, int units, const char* prefix, std::uint64_t seed) {
    auto sharded = std::make_unique<Net<RunTimeAny>>(communicator, net::units(units, prefix),
                                                     RunTimeAny{.strategy = FullyShard<>{}});
    sharded->initialize(seed);
    return sharded;
  };
  on_ranks(2, [&](Comm& communicator) {
    const auto found = net::steps(*made(communicator, 3, "a", 1), large, 3);
    const auto other = net::steps(*made(communicator, 2, "b", 2), small, 3);
    const double evaluated = net::evaluate(*made(communicator, 2, "c", 3), small);

    auto a = made(communicator, 3, "a", 1), b = made(communicator, 2, "b", 2), c = made(communicator, 2, "c", 3);
    std::vector<double> of_a, of_b;
    for (int step = 0; step < 3; ++step) {
      if (step == 2) c.reset();
      const net::Place place{.rank = communicator.rank(), .micro_batch = 0, .step = step};
      net::Walk walk_a{net::inputs(place)}, walk_b = walk_a;
      auto pass_a = a->train(), pass_b = b->train();
      for (const int unit : {0, 1, 2}) {
        walk_a.forward(pass_a.forward(unit));
        if (unit < 2) walk_b.forward(pass_b.forward(unit));
      }
      if (step < 2) {
        EXPECT_EQ(net::evaluate(*c, small), evaluated);
      }
      const double loss_a = net::error(walk_a.x, net::targets(place));
      const double loss_b = net::error(walk_b.x, net::targets(place));
      for (const int unit : {2, 1, 0}) {
        walk_a.backward(pass_a.backward(unit));
        if (unit < 2) walk_b.backward(pass_b.backward(unit));
      }
      pass_b.finish();
      pass_a.finish();
      of_a.push_back(a->step(loss_a, {.lr = 1e-2}).loss);
      of_b.push_back(b->step(loss_b, {.lr = 1e-2}).loss);
    }
    EXPECT_EQ(of_a, found);
    EXPECT_EQ(of_b, other);
  });
}

/// Trains a chain of three units; the middle unit is in a separate object.
template <class Precision>
std::vector<double> train_middle_apart(int steps) {
  return of_first_rank(2, [&](Comm& communicator) {
    std::vector<double> losses;
    const RunTimeAny strategy{.strategy = FullyShard<>{}};
    Net<RunTimeAny> outer(communicator, {net::unit("unit0"), net::unit("unit2")}, strategy);
    Net<RunTimeAny, Precision> middle(communicator, {net::unit("unit1")}, strategy);
    outer.initialize(1);
    middle.initialize(1);
    for (int step = 0; step < steps; ++step) {
      const net::Place place{.rank = communicator.rank(), .step = step};
      net::Walk walk{net::inputs(place)};
      auto pass = outer.train();
      auto middle_pass = middle.train();
      walk.forward(pass.forward(0));
      walk.forward(middle_pass.forward(0));
      walk.forward(pass.forward(1));
      const double loss = net::error(walk.x, net::targets(place));
      walk.backward(pass.backward(1));
      walk.backward(middle_pass.backward(0));
      walk.backward(pass.backward(0));
      pass.finish();
      middle_pass.finish();
      const double sum = outer.step(loss, {.lr = 1e-2}).loss;
      EXPECT_EQ(middle.step(loss, {.lr = 1e-2}).loss, sum);
      losses.push_back(sum);
    }
    return losses;
  });
}

/// Without clipping, which would use the norm of each object.
TEST(SeveralObjects, TrainPartsOfOneNetworkInDifferentPrecisions) {
  const Loop run{.uses = {0, 1, 2}};
  const std::vector<double> whole = train(net::units(3), run, 2, RunTimeAny{.strategy = FullyShard<>{}}).losses;
  EXPECT_EQ(train_middle_apart<Fp32>(3), whole);
  const std::vector<double> mixed = train_middle_apart<Bf16Mixed>(3);
  EXPECT_NE(mixed, whole);
  for (auto at = mixed.begin(); const double loss : whole) EXPECT_NEAR(*at++, loss, 1e-2 * loss);
}

}  // namespace
}  // namespace fsdp::test
