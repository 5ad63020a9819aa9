// SPDX-License-Identifier: Apache-2.0
// Parameter groups are bit-identical to hand-written optimizers and use the planned memory.
#include <cmath>
#include <span>
#include <string>
#include <type_traits>
#include <vector>

#include <gtest/gtest.h>

#include <support/nets.hpp>

#include "support/temporary_folder.hpp"

namespace fsdp::test {
namespace {

/// AdamW, except that parameters that match `pattern` have their own weight decay and `lr` times the learning rate.
struct HandMade {
  optim::AdamW adamw = {};
  std::string pattern = "";
  double lr = 1;
  double weight_decay = 0;

  static constexpr std::string_view name() { return "hand-made"; }
  static constexpr optim::Grain grain() { return optim::Grain::elements; }
  std::span<const optim::StateSpec> states(const Parameter& parameter) const { return adamw.states(parameter); }

  template <class Stream, class Compute>
  void update(Stream& stream, const optim::Update<Compute>& piece, Tensor<const device::StepDecision> decision) const {
    if constexpr (std::is_same_v<Stream, device::Cpu::Stream>)
      if (matches_any({pattern}, piece.parameter.name)) {
        device::StepDecision own = decision[0];
        own.lr *= lr;
        Parameter parameter = piece.parameter;
        parameter.decays = true;
        optim::AdamW other = adamw;
        other.weight_decay = weight_decay;
        return other.update(stream,
                            optim::Update<Compute>{.parameter = parameter,
                                                   .main = piece.main,
                                                   .states = piece.states,
                                                   .gradient = piece.gradient,
                                                   .model = piece.model},
                            Tensor<const device::StepDecision>(&own, {1}));
      }
    adamw.update(stream, piece, decision);
  }
  template <class Self, class Visitor>
  static void visit(Self& self, Visitor&& visitor) {
    optim::AdamW::visit(self.adamw, visitor);
  }
};

/// Trains a network with the given settings and returns its weights. Gradients are clipped to norm `clip`.
template <class Optimizer, class Sharding>
Whole trained(const Sharding& strategy, int ranks, const UnitOptions& unit_options, const Optimizer& optimizer,
              double clip = 0.5, int steps = 4, const std::vector<Unit>& units = net::units(3)) {
  return of_first_rank(ranks, [&](Comm& communicator) {
    const int micro_batches = sharding::facts_of(strategy).pieces > 0 ? 1 : 2;
    Sharded<NetStack<Sharding>, Optimizer> sharded(communicator, units, strategy,
                                                   {.micro_batches = micro_batches,
                                                    .optimizer = optimizer,
                                                    .rules = {.clip = clip},
                                                    .unit_options = unit_options});
    sharded.initialize(1);
    net::steps(sharded, {.uses = {0, 1, 2}, .micro_batches = micro_batches}, steps);
    EXPECT_EQ(sharded.held(), sharded.planned());
    return net::weights(sharded);
  });
}

/// The same with SGD, whose updates are proportional to the gradients.
template <class Sharding>
Whole trained(const Sharding& strategy, int ranks, const std::vector<OptimizerGroup>& groups, double clip = 0.5,
              int steps = 4, std::vector<std::string> frozen = {}) {
  return trained(strategy, ranks, {.frozen = std::move(frozen), .groups = groups},
                 optim::RunTimeOptimizer{optim::Sgd{}}, clip, steps);
}

Whole only(const Whole& all, const std::string& pattern) {
  Whole some;
  for (const auto& [name, values] : all)
    if (matches_any({pattern}, name)) some[name] = values;
  return some;
}

const RunTimeAny in_shards{.strategy = FullyShard<>{}}, in_pieces{.strategy = Reproducible<FullyShard<>>{{}, 2}};

/// Expects that a run with a group and a run with a hand-written optimizer are bit-identical.
template <class Sharding>
void expect_by_hand(const Sharding& strategy, int ranks, const OptimizerGroup& group, const HandMade& by_hand) {
  const Whole found = trained(strategy, ranks, {.groups = {group}}, optim::AdamW{});
  EXPECT_EQ(found, trained(strategy, ranks, {}, by_hand)) << policy_text(strategy) << " on " << ranks;
  EXPECT_NE(found, trained(strategy, ranks, {}, optim::AdamW{}));
}

TEST(OptimizerGroups, AreBitIdenticalToAHandWrittenOptimizer) {
  const auto check = [](const OptimizerGroup& group, const HandMade& by_hand) {
    expect_by_hand(in_shards, 2, group, by_hand);
  };
  check({.parameters = "*.w", .weight_decay = 0}, {.pattern = "*.w", .weight_decay = 0});
  check({.parameters = "*.b", .weight_decay = 0.5}, {.pattern = "*.b", .weight_decay = 0.5});
  check({.parameters = "*.w", .lr = 0}, {.pattern = "*.w", .lr = 0, .weight_decay = 0.1});
}

TEST(OptimizerGroups, AreBitIdenticalUnderEveryStrategy) {
  const auto check = [](const auto& strategy, int ranks) {
    expect_by_hand(strategy, ranks, {.parameters = "unit1.*", .lr = 0.1, .weight_decay = 0.2},
                   {.pattern = "unit1.*", .lr = 0.1, .weight_decay = 0.2});
  };
  for (const RunTimeAny& strategy : sharded_strategies()) check(strategy, 2);
  check(in_shards, 1);
  check(in_shards, 3);
  check(Replicated{}, 2);
  check(Offload<FullyShard<>>{}, 2);
}

/// A unit whose only tensor has no elements: there is nothing to copy.
TEST(OffloadedOptimizer, StepsUnitsWithEmptyTensors) {
  std::vector<Unit> units = net::units(3);
  units[1].parameters = {{.name = "odd", .shape = {0, 8}}};
  for (const int ranks : {1, 2}) {
    const auto weights = [&](const auto& strategy) {
      return trained(strategy, ranks, {}, optim::AdamW{}, 0.5, 4, units);
    };
    EXPECT_EQ(weights(Offload<FullyShard<>>{}), weights(in_shards));
  }
}

TEST(OptimizerGroups, SetTheWeightDecayOfEveryOptimizer) {
  const RunTimeAny owned{.strategy = FullyShard<>{}, .other_layout = buffer::Owned{}};
  const auto check = [&](const optim::RunTimeOptimizer& plain, const optim::RunTimeOptimizer& decaying) {
    const UnitOptions groups{.groups = {{.role = Role::matrix, .weight_decay = 0.5}}};
    const Whole found = trained(owned, 2, groups, plain);
    EXPECT_EQ(found, trained(owned, 2, {}, decaying));
    EXPECT_NE(found, trained(owned, 2, {}, plain));
  };
  check({optim::AdamW{}}, {optim::AdamW{.weight_decay = 0.5}});
  check({optim::Sgd{}}, {optim::Sgd{.weight_decay = 0.5}});
  check({optim::Muon{}}, {optim::Muon{.adamw = {.weight_decay = 0.5}}});
}

TEST(OptimizerGroups, AddNoCollective) {
  const auto collectives = [](const RunTimeAny& strategy, const std::vector<OptimizerGroup>& groups) {
    std::size_t count = 0;
    Comm::run(2, {.record = true}, [&](Comm& communicator) {
      Initialized<RunTimeAny> sharded(communicator, net::units(3), strategy, {.unit_options = {.groups = groups}});
      communicator.monitor().records.clear();
      net::steps(sharded, {.uses = {0, 1, 2}}, 1);
      if (communicator.rank() == 0) count = communicator.monitor().records.size();
    });
    return count;
  };
  for (const RunTimeAny& strategy : {in_shards, in_pieces}) {
    const std::size_t plain = collectives(strategy, {});
    EXPECT_GT(plain, 0u);
    EXPECT_EQ(
        collectives(strategy, {{.parameters = "unit1.*", .lr = 0.5, .clip = 1}, {.parameters = "*0.b", .clip = 1}}),
        plain);
  }
}

TEST(OptimizerGroups, SeveralGroupsOfOneParameterCombine) {
  const auto by = [](std::vector<OptimizerGroup> groups) { return trained(in_shards, 2, groups); };
  EXPECT_EQ(by({{.parameters = "unit1.w", .lr = 0.3, .weight_decay = 0.2},
                {.parameters = "unit?.b", .lr = 0.3},
                {.parameters = "unit0.w", .weight_decay = 0.2},
                {.parameters = "unit2.w", .weight_decay = 0.2}}),
            by({{.parameters = "*1.w", .lr = 0.3},
                {.parameters = "*.b", .lr = 0.3},
                {.role = Role::matrix, .weight_decay = 0.2}}));
  EXPECT_EQ(by({{.units = "unit1", .lr = 2}}), by({{.parameters = "unit1.*", .lr = 2}}));
  EXPECT_EQ(by({{.role = Role::vector, .lr = 2}}), by({{.parameters = "*.b", .lr = 2}}));
  EXPECT_EQ(by({{.lr = 1, .clip = 0.5}}), by({}));
}

/// A group that is clipped separately has the gradients and the norm of a step that trains only this group.
TEST(OptimizerGroups, AreClippedSeparatelyAsIfTrainedAlone) {
  const auto check = [](const auto& strategy, int ranks) {
    SCOPED_TRACE(message(policy_text(strategy), " on ", ranks));
    const Whole found =
        trained(strategy, ranks, {{.parameters = "unit1.*", .clip = 1e-3}, {.parameters = "*.b", .lr = 0.5}}, 1e-2, 1);
    const std::vector<OptimizerGroup> halved = {{.parameters = "*.b", .lr = 0.5}};
    EXPECT_EQ(only(found, "unit1.*"),
              only(trained(strategy, ranks, halved, 1e-3, 1, {"unit0.*", "unit2.*"}), "unit1.*"));
    const Whole rest = trained(strategy, ranks, halved, 1e-2, 1, {"unit1.*"});
    EXPECT_EQ(only(found, "unit[02].*"), only(rest, "unit[02].*"));
    EXPECT_NE(only(found, "unit[02].*"), only(trained(strategy, ranks, halved, 1e-2, 1), "unit[02].*"));
  };
  for (const RunTimeAny& strategy : sharded_strategies()) check(strategy, 2);
  check(in_shards, 3);
  check(Replicated{}, 2);
  check(in_pieces, 2);
}

/// With pieces the exact norm is computed relative to the largest gradient. Here the gradients of the biases are far
/// smaller than the others.
TEST(OptimizerGroups, NormsMatchTheGradientsOfTheGroup) {
  const auto check = [](Comm& communicator, const RunTimeAny& strategy, double bound) {
    Initialized<RunTimeAny> sharded(
        communicator, net::units(3), strategy,
        {.unit_options = {.groups = {{.parameters = "*.b", .clip = 1}, {.parameters = "unit0.w", .clip = 0}}}});
    const double loss = net::train(sharded, {.uses = {0, 1, 2}});
    std::vector<double> squares(3);
    for (const auto& shard : sharded.shards()) {
      const std::string& name = shard.parameter->name;
      double& sum = squares[name.ends_with(".b") ? 1 : name == "unit0.w" ? 2 : 0];
      auto* const gradients = const_cast<float*>(shard.gradient.data());
      for (float& gradient : std::span(gradients, static_cast<std::size_t>(shard.gradient.numel()))) {
        if (name.ends_with(".b")) gradient *= 1e-4f;
        sum += static_cast<double>(gradient) * static_cast<double>(gradient);
      }
    }
    for (double& sum : squares) sum = std::sqrt(comm::sum_over_ranks(communicator, sum, {"test"}));
    const double norm = sharded.step(loss, {.lr = 1e-2}).norm;
    const std::vector<double> apart = sharded.optimizer().control().norms_apart();
    EXPECT_NEAR(norm, squares[0], bound * squares[0]);
    ASSERT_EQ(apart.size(), 2u);
    for (const std::size_t i : {0, 1}) EXPECT_NEAR(apart[i], squares[i + 1], bound * squares[i + 1]);
  };
  on_ranks(2, [&](Comm& communicator) {
    check(communicator, in_shards, 1e-12);
    check(communicator, in_pieces, 1e-8);
  });
}

TEST(OptimizerGroups, AFrozenGroupEqualsFrozenParameters) {
  for (const RunTimeAny& strategy : sharded_strategies()) {
    const Whole frozen = trained(strategy, 2, {{.parameters = "unit1.*", .frozen = true}});
    EXPECT_EQ(frozen, trained(strategy, 2, {}, 0.5, 4, {"unit1.*"}));
    EXPECT_NE(frozen, trained(strategy, 2, {}));
    EXPECT_EQ(trained(strategy, 2, {{.role = Role::vector, .frozen = true}}),
              trained(strategy, 2, {}, 0.5, 4, {"*.b"}));
  }
}

/// If the gradients of one group are not finite, the step of all groups is skipped.
TEST(OptimizerGroups, AnOverflowInOneGroupSkipsTheStepOfAll) {
  on_ranks(2, [](Comm& communicator) {
    Initialized<RunTimeAny> sharded(
        communicator, net::units(2), in_shards,
        {.rules = {.clip = 1, .skips_overflow = true},
         .unit_options = {.groups = {{.parameters = "unit0.b", .clip = 1}, {.parameters = "*.w", .lr = 0.5}}}});
    const net::Loop run{.uses = {0, 1}};
    sharded.step(net::train(sharded, run), {.lr = 1e-2});
    const Whole before = net::weights(sharded);
    const double loss = net::train(sharded, run);
    for (const auto& shard : sharded.shards())
      if (shard.parameter->name == "unit0.b" && communicator.rank() == 1)
        const_cast<float*>(shard.gradient.data())[0] = INFINITY;
    const device::StepDecision skipped = sharded.step(loss, {.lr = 1e-2});
    EXPECT_EQ(skipped.skipped, 1);
    EXPECT_FALSE(std::isfinite(skipped.norm));
    EXPECT_EQ(net::weights(sharded), before);
    const device::StepDecision next = sharded.step(net::train(sharded, run), {.lr = 1e-2});
    EXPECT_EQ(next.taken, 2);
    EXPECT_NE(net::weights(sharded), before);
  });
}

/// Two orders train one unit each; both units are in one group.
TEST(OptimizerGroups, AreUpdatedByTheOrdersThatTrainThem) {
  on_ranks(2, [](Comm& communicator) {
    const auto weights = [&](const UnitOptions& options, double lr) {
      Initialized<RunTimeAny> both(
          communicator, net::units(2), in_shards,
          {.orders = {mirrored(std::vector{0}), mirrored(std::vector{1})}, .unit_options = options});
      auto& control = both.optimizer().control();
      for (const int order : {0, 1, 1, 0, 1}) {
        both.step(net::train(both, {.uses = {order}, .order = order}), {.lr = lr});
        if (!options.groups.empty()) control.resume(control.steps(), control.taken());  // changes nothing
      }
      EXPECT_EQ(control.taken(), (std::vector<std::int64_t>{2, 3}));
      EXPECT_EQ(both.held(), both.planned());
      return net::weights(both);
    };
    const auto groups = weights({.groups = {{.lr = 0.5, .clip = 0}}}, 1e-2);
    EXPECT_EQ(groups, weights({}, 5e-3));
  });
}

TEST(OptimizerGroups, KeepTheNormOfTheLastStepThatMadeTheirGradients) {
  on_ranks(2, [](Comm& communicator) {
    Initialized<RunTimeAny> both(
        communicator, net::units(2), in_shards,
        {.orders = {mirrored(std::vector{0}), mirrored(std::vector{1})},
         .unit_options = {.groups = {{.parameters = "unit0.*", .clip = 0}, {.parameters = "unit1.*", .clip = 0}}}});
    std::vector<double> before{0, 0};
    for (const int order : {0, 0, 1, 0, 0, 1, 1, 1}) {
      both.step(net::train(both, {.uses = {order}, .order = order}), {.lr = 1e-2});
      const std::vector<double> norms = both.optimizer().control().norms_apart();
      const auto own = static_cast<std::size_t>(order), other = 1 - own;
      EXPECT_NE(norms[own], before[own]);
      EXPECT_EQ(norms[other], before[other]);
      before = norms;
    }
  });
}

/// Expects that these groups are refused with this error.
template <class Optimizer = optim::AdamW>
void expect_refused(const std::vector<OptimizerGroup>& groups, const std::string& text) {
  using Refused = Sharded<NetStack<RunTimeAny>, Optimizer>;
  EXPECT_INPUT_ERROR(Refused::plan(2, 0, net::units(2), in_shards, {.unit_options = {.groups = groups}}), text);
}

TEST(OptimizerGroups, RefuseGroupsThatContradictOrSetNothing) {
  expect_refused({{.parameters = "unit1.v", .lr = 1}},
                 "group 'unit1.v' matches no parameter of the model; did you mean 'unit1.w'?");
  expect_refused({{.units = "unt0", .lr = 1}},
                 "group '*' of units 'unt0' matches no parameter of the model; did you mean 'unit0'?");
  expect_refused({{.role = Role::table, .lr = 1}},
                 "group '*' of role table matches no parameter of the model; leave it out");
  expect_refused({{.parameters = "*.w", .lr = 0.5}, {.parameters = "unit0.*", .lr = 0.25}},
                 "groups '*.w' and 'unit0.*' give parameter 'unit0.w' different values: lr 0.5 and 0.25; let one of "
                 "them have it");
  expect_refused({{.parameters = "*.w", .weight_decay = 0.5}, {.weight_decay = 0}}, "weight-decay 0.5 and 0");
  expect_refused({{.parameters = "*.w", .clip = 1}, {.clip = 1}}, "groups '*.w' and '*' both clip parameter 'unit0.w'");
  expect_refused({{.lr = -1}}, "group '*': lr is -1; give at least 0 and at most 1000");
  expect_refused({{.clip = NAN}}, "group '*': clip is nan");
  expect_refused({{.weight_decay = 2000}}, "group '*': weight-decay is 2000; give at least 0 and at most 1000");
  expect_refused({{.parameters = "*.b"}}, "group '*.b' sets nothing; give it lr, weight-decay, clip or frozen");
  expect_refused({{.lr = 1}, {.clip = 1}}, "group '*' is listed twice; put its values into one");
  expect_refused({{.lr = 1, .frozen = true}}, "group '*': lr has no effect on frozen parameters");
  expect_refused({{.frozen = true}}, "units: every parameter is frozen, so there is nothing to train");
  expect_refused({{.parameters = "*.b", .frozen = true}, {.parameters = "unit0.b", .lr = 2}},
                 "group 'unit0.b' has frozen parameters alone, which no step changes; leave it out");
}

TEST(OptimizerGroups, OptimizersWithOneDecayAllowOnlyDecayZero) {
  expect_refused<HandMade>({{.parameters = "*.b", .weight_decay = 0.25}},
                           "the optimizer hand-made has one weight decay for all parameters that decay, and a group "
                           "sets 0.25 for 'unit0.b'");
  EXPECT_EQ(trained(in_shards, 2, {.groups = {{.parameters = "unit1.w", .weight_decay = 0}}}, HandMade{}),
            trained(in_shards, 2, {.groups = {{.parameters = "unit1.w", .weight_decay = 0}}}, optim::AdamW{}));
}

TEST(OptimizerGroups, DifferentGroupsBetweenRanksAreRefusedOnAllRanks) {
  on_ranks(2, [](Comm& communicator) {
    const UnitOptions options{.groups = {{.parameters = "*.b", .lr = 0.5 + communicator.rank()}}};
    EXPECT_INPUT_ERROR(Net<RunTimeAny>(communicator, net::units(2), in_shards, {.unit_options = options}),
                       "rank 1 has other groups of parameters than rank 0");
  });
}

}  // namespace
}  // namespace fsdp::test
