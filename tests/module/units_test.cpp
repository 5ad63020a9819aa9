// SPDX-License-Identifier: Apache-2.0
// How a model's list of units becomes groups: merged, separate, replicated, frozen.
#include <tessera/fsdp/module/units.hpp>

#include <algorithm>
#include <limits>
#include <numeric>

#include <gtest/gtest.h>

#include <support/small_llama.hpp>
#include <support/temporary_folder.hpp>
#include <tessera/fsdp/module/module_plan.hpp>
#include <tessera/fsdp/sharding/per_unit.hpp>
#include <tessera/fsdp/sharding/scheduler.hpp>
#include <tessera/fsdp/sharding/slots.hpp>
#include <tessera/fsdp/sharding/strategies.hpp>

namespace fsdp::test {
namespace {

using Names = std::vector<std::string>;

/// An embedding of 100 elements, three blocks with tensors of 40 and 4, and a head with tensors of 100 and 4.
std::vector<Unit> small_units(bool tied = false) {
  std::vector<Unit> units{{"embedding", {{"table", {10, 10}}}, false}};
  for (const std::string block : {"a", "b", "c"})
    units.push_back(
        {"block " + std::to_string(units.size() - 1), {{block + ".norm", {4}}, {block + ".weight", {10, 4}}}});
  units.push_back({"head", {{"norm", {4}}, {tied ? "table" : "head", {10, 10}}}});
  return units;
}

/// A strategy whose tensors of at most `threshold` elements are persistent.
std::vector<StrategyPart> persisting(std::int64_t threshold) {
  return {{.rules = {.facts = {.persistence_threshold = threshold}}}};
}

/// Lists the groups and their tensors, as in "embedding: table; block 0: a.norm a.weight; ...".
std::string text_of(const UnitGroups& groups) {
  std::string text;
  for (const GroupedParameters& group : groups.groups) {
    text += (text.empty() ? "" : "; ") + group.name + ":";
    for (const Parameter& parameter : group.parameters) text += " " + parameter.name;
  }
  return text;
}

TEST(UnitOptions, EachUnitIsOneGroupByDefault) {
  EXPECT_EQ(text_of(group_parameters(small_units(), {})),
            "embedding: table; block 0: a.norm a.weight; block 1: b.norm b.weight; block 2: c.norm c.weight; "
            "head: norm head");
}

TEST(OffloadedBlocks, AreEvenlySpacedAndNeverTheLast) {
  using Blocks = std::vector<int>;
  EXPECT_EQ(offloaded_blocks(1, 4), (Blocks{0, 1, 2}));
  EXPECT_EQ(offloaded_blocks(0.5, 4), (Blocks{0, 2}));
  EXPECT_EQ(offloaded_blocks(0.51, 4), (Blocks{0, 1, 2}));
  EXPECT_EQ(offloaded_blocks(0.25, 32), (Blocks{0, 4, 8, 12, 16, 20, 24, 28}));
  EXPECT_EQ(offloaded_blocks(0.1, 30).size(), 3u) << "0.1 * 30 is a little more than 3";
  for (const double little : {1e-6, 1e-10, 1e-300}) EXPECT_EQ(offloaded_blocks(little, 32), Blocks{0});
  EXPECT_EQ(offloaded_blocks(0, 32), Blocks{});
  for (const int none : {1, 0, -1}) EXPECT_EQ(offloaded_blocks(1, none), Blocks{});
}

TEST(UnitOptions, ATiedWeightIsASeparateGroupAfterTheOthers) {
  const UnitGroups groups = group_parameters(small_units(true), {});
  EXPECT_EQ(text_of(groups),
            "block 0: a.norm a.weight; block 1: b.norm b.weight; block 2: c.norm c.weight; head: norm; table: table");
  EXPECT_EQ(groups.uses.front().groups, std::vector<int>{4});
  EXPECT_EQ(groups.uses.back().groups, (std::vector<int>{3, 4}));
  EXPECT_EQ(groups.references.back()[1].group, 4);
}

TEST(UnitOptions, BlocksPerUnitGroupsThatManyBlocks) {
  EXPECT_EQ(text_of(group_parameters(small_units(), {.blocks_per_unit = 2})),
            "embedding: table; block 0 and block 1: a.norm a.weight b.norm b.weight; block 2: c.norm c.weight; "
            "head: norm head");
  EXPECT_EQ(text_of(group_parameters(small_units(), {.blocks_per_unit = 7})),
            "embedding: table; block 0 to block 2: a.norm a.weight b.norm b.weight c.norm c.weight; head: norm head");
}

TEST(UnitOptions, SmallUnitsMergeWithTheirNeighbours) {
  EXPECT_EQ(text_of(group_parameters(small_units(), {.merge_below = 60})),
            "embedding: table; block 0 and block 1: a.norm a.weight b.norm b.weight; block 2 and head: c.norm c.weight "
            "norm head");
  EXPECT_EQ(group_parameters(small_units(), {.merge_below = 1000}).groups.size(), 1u);
}

TEST(UnitOptions, FrozenReplicatedAndPersistentTensorsAreSeparateGroups) {
  EXPECT_EQ(text_of(group_parameters(small_units(), {.replicated = {"table"}, .frozen = {"b.*", "?.norm"}})),
            "embedding, replicated: table; block 0: a.weight; block 1, frozen: b.norm b.weight; block 2: c.weight; "
            "head: norm head; block 0, frozen: a.norm; block 2, frozen: c.norm");
  EXPECT_EQ(text_of(group_parameters(small_units(), {}, persisting(4))),
            "embedding: table; block 0: a.weight; block 1: b.weight; block 2: c.weight; head: head; "
            "block 0, persistent: a.norm; block 1, persistent: b.norm; block 2, persistent: c.norm; "
            "head, persistent: norm");
}

TEST(UnitOptions, SmallPersistentGroupsTakeNoLargeSlot) {
  const sharding::Rules rules = Zero3{.persistence_threshold = 4}.rules();
  UnitGroups groups = group_parameters(small_units(), {}, persisting(rules.facts.persistence_threshold));
  sharding::Problem problem{.units = std::move(groups.uses), .groups = {}, .micro_batches = 2};
  for (const GroupedParameters& group : groups.groups) {
    problem.groups.push_back(facts_of(group, {.rules = {.facts = rules.facts}}, {}));
    problem.groups.back().slot_elements = group.elements();
  }
  const auto sizes = slot_sizes(assign_slots(make_schedule(rules, problem), problem), problem).weights;
  EXPECT_LE(std::accumulate(sizes.begin(), sizes.end(), std::int64_t{0}), 2 * 100 + 4 * 4);
}

TEST(UnitOptions, InvalidOptionsAreErrors) {
  EXPECT_THROW(group_parameters(small_units(), {.blocks_per_unit = 0}), InputError);
  EXPECT_THROW(group_parameters(small_units(), {.merge_below = -1}), InputError);
  EXPECT_THROW(group_parameters(small_units(), {.replicated = {"nothing"}}), InputError);
  EXPECT_THROW(group_parameters(small_units(), {.frozen = {"*"}}), InputError);
}

/// A unit of one parameter with these absent fields.
std::vector<Unit> with_absent(std::vector<int> absent) {
  return {{.name = "part", .parameters = {{"weight", {3}}}, .absent = std::move(absent)}};
}

TEST(Units, AbsentFieldsKeepTheirPositionInTheUnit) {
  const UnitGroups groups = group_parameters(with_absent({0, 2}), {});
  ASSERT_EQ(groups.references[0].size(), 3u);
  EXPECT_FALSE(groups.references[0][0].present());
  EXPECT_TRUE(groups.references[0][1].present());
  EXPECT_FALSE(groups.references[0][2].present());
  EXPECT_INPUT_ERROR(group_parameters(with_absent({99}), {}),
                     "units: part lists field 99 as absent; its fields are numbered from 0 to 1, parameters and absent "
                     "ones together, and absent ones are listed in ascending order");
  for (const std::vector<int>& wrong : {std::vector{2}, {-1}, {1, 1}, {2, 0}, {0, 3}})
    EXPECT_THROW(group_parameters(with_absent(wrong), {}), InputError) << wrong.front();
}

TEST(Units, InvalidPartsOrAxesAreErrors) {
  const auto in_parts = [](int parts) {
    return std::vector<Unit>{{.name = "part", .parameters = {{"weight", {3}}}, .stages = {.parts = parts}}};
  };
  const auto planned = [&](int parts) {
    return ModulePlan(in_parts(parts), {.micro_batches = 1}, calls_of(FullyShard<>{}), {{}}, 1, true);
  };
  EXPECT_INPUT_ERROR(planned(-1), "units: part is to be computed in -1 parts; give 0");
  EXPECT_INPUT_ERROR(planned(std::numeric_limits<int>::max()), "is to be computed in 2147483647");
  EXPECT_INPUT_ERROR(planned(513), "in 513 parts; give 0, for a unit without stages, to 512");
  EXPECT_INPUT_ERROR(chain(-1), "order: a chain of -1 units; give at least 0");
  for (const int rank : {-1, 5}) {
    std::vector<Unit> units = with_absent({});
    units[0].parameters[0].shape.rank = rank;
    EXPECT_INPUT_ERROR(group_parameters(units, {}),
                       message("'weight' of part has ", rank, " axes; a shape has 0 to 4"));
  }
}

TEST(Units, ABlockThatDoesNotDivideItsTensorIsAnError) {
  std::vector<Unit> units = with_absent({});
  for (const std::int64_t block : {2, 4, -1}) {
    units[0].parameters[0].block = block;
    EXPECT_INPUT_ERROR(group_parameters(units, {}),
                       message("units: parameter 'weight' of part has 3 elements, and its ", "block of ", block,
                               " does not divide them; give a block"));
  }
  units.push_back(units[0]);
  units[0].parameters[0].block = 3;
  units[1].parameters[0].block = 1;
  EXPECT_INPUT_ERROR(group_parameters(units, {}),
                     "has a block of 1 elements, and the one of that name before it of 3;");
}

TEST(Units, BlocksOfLayoutsAreWholeBlocksOfTheTensorAndOfTheOptimizer) {
  std::int64_t of_optimizer = 0;
  const StepWork step{.block = [&](const Parameter&) { return of_optimizer; }};
  for (const auto& [own, optimizer, expected, frozen] : std::vector<std::array<std::int64_t, 4>>{{0, 0, 0, 0},
                                                                                                 {40, 0, 40, 0},
                                                                                                 {0, 64, 64, 0},
                                                                                                 {40, 64, 320, 0},
                                                                                                 {160, 256, 1280, 0},
                                                                                                 {64, 16, 64, 0},
                                                                                                 {8, 64, 64, 0},
                                                                                                 {640, 500, 1280, 0},
                                                                                                 {0, 5000, 1280, 0},
                                                                                                 {40, 64, 40, 1}}) {
    GroupedParameters group;
    group.frozen = frozen != 0;
    group.parameters = {{.name = "w", .shape = {40, 32}, .block = own}};
    of_optimizer = optimizer;
    EXPECT_EQ(specs_of(std::span(&group, 1), step, false)[0].tensors[0].block, expected) << own << ", " << optimizer;
  }
  of_optimizer = -4;
  EXPECT_INPUT_ERROR(step.block_of({.name = "w", .shape = {4}}),
                     "the optimizer states a block of -4 elements for 'w'; state at");
}

/// Otherwise the matmuls of a unit would depend on the persistence threshold.
TEST(Units, JoinedTensorsArePersistentOnlyTogether) {
  std::vector<Unit> units{{"block", {{"norm", {4}}, {"q", {8, 4}}, {"k", {2, 4}}, {"v", {2, 4}}}}};
  for (const int field : {2, 3}) units[0].parameters[static_cast<std::size_t>(field)].joins_previous = true;
  EXPECT_EQ(text_of(group_parameters(units, {}, persisting(8))), "block: q; block, persistent: norm k v");
  EXPECT_EQ(text_of(group_parameters(units, {}, persisting(8), true)), "block: q k v; block, persistent: norm");
  const auto parts = [](const char* names) { return calls_of(PerUnit{on(names, Zero1{}), otherwise(Zero2{})}).parts; };
  EXPECT_EQ(text_of(group_parameters(units, {}, parts("k"))), "block: norm q v; block, zero1: k");
  EXPECT_EQ(text_of(group_parameters(units, {}, parts("q|k|v"), true)), "block, zero1: q k v; block: norm");
  EXPECT_INPUT_ERROR(group_parameters(units, {}, parts("k"), true),
                     "sharding: 'k' of block has another strategy or precision than the tensor before it");
}

TEST(Units, PatternsSelectSomethingWithEachAlternative) {
  std::vector<Unit> units = small_units(true);
  const auto refused = [&](const TensorPattern& pattern, const UnitOptions& options = {}) {
    const PerUnit strategy{on(pattern, Zero1{}), otherwise(Zero2{})};
    return test::input_error_of([&] { group_parameters(units, options, calls_of(strategy).parts); });
  };
  EXPECT_EQ(refused({"tabel"}).find("sharding: the pattern 'tabel' matches no tensor; did you mean 'table'? Known: "),
            0u);
  EXPECT_EQ(refused({"table|block?9"}).find("sharding: 'block?9' of the pattern 'table|block?9' matches no tensor; "),
            0u);
  EXPECT_EQ(
      refused({"*norm*|table", Role::vector}),
      "sharding: 'table' of the pattern '*norm*|table,role=vector' matches no tensor; there are such names, but of "
      "other roles or sizes");
  EXPECT_EQ(refused({"table|lm_head"}).find("sharding: 'lm_head' of the pattern 'table|lm_head' matches no tensor"),
            0u);
  EXPECT_EQ(refused({"b.*"}, {.replicated = {"a.*", "b.norm"}}),
            "sharding: 'b.norm' of block 1 is replicated (UnitOptions::replicated, --replicate), and matches 'b.*', "
            "which gives it the strategy 'zero1'; leave it out of one of them");
  units.back().parameters.back().tied_as = "lm_head.weight";
  for (const char* const names : {"table|lm_head", "lm_head"})
    EXPECT_EQ(text_of(group_parameters(units, {}, calls_of(PerUnit{on(names, Zero1{}), otherwise(Zero2{})}).parts)),
              "block 0: a.norm a.weight; block 1: b.norm b.weight; block 2: c.norm c.weight; head: norm; "
              "table, zero1: table");
}

/// Checkpoints number classes.
TEST(ModulePlan, NumbersClassesByTheirOrdersAndNotByGroups) {
  const std::vector<Unit> units{{"a", {{"a.w", {4, 4}}, {"a.b", {4}}}}, {"b", {{"b.w", {4, 4}}}}};
  const auto class_of = [&](const StrategyCalls& strategy, const char* group) {
    ModulePlan plan(units, {.orders = {mirrored({0}), mirrored({1})}}, strategy,
                    std::vector<sharding::Axes>(strategy.parts.size()), 1, false);
    for (const GroupedParameters& each : plan.grouped()) plan.add(plan.facts_of(each));
    plan.make_schedules();
    const auto& names = plan.names().groups;
    return plan.step_class(static_cast<int>(std::ranges::find(names, group) - names.begin()));
  };
  EXPECT_EQ(class_of(calls_of(Zero2{}), "b"), 1);
  EXPECT_EQ(class_of(calls_of(PerUnit{on("a.w", Zero1{}), otherwise(Zero2{})}), "b"), 1);
}

/// Plans training passes of at most `micro_batches` micro-batches over the small units, on two ranks. `asked` receives
/// the numbers of micro-batches for which a schedule was made.
ModulePlan planned_for(int micro_batches, std::vector<int>& asked, sharding::Rules (*rules_of)(int micro_batches)) {
  const std::vector<Unit> units = small_units();
  StrategyCalls strategy = calls_of(FullyShard<>{});
  strategy.schedule_of = [&asked, rules_of](const sharding::Problem& problem) {
    if (problem.pass == sharding::Pass::train) asked.push_back(problem.micro_batches);
    return sharding::make_schedule(rules_of(problem.micro_batches), problem);
  };
  ModulePlan plan(units, {.orders = {chain(5)}, .micro_batches = micro_batches, .fewer = true}, strategy,
                  {{.shard = 2}}, 2, false);
  for (const GroupedParameters& group : plan.grouped()) {
    sharding::GroupFacts facts = plan.facts_of(group);
    facts.slot_elements = group.elements();
    plan.add(facts);
  }
  plan.make_schedules();
  return plan;
}

TEST(ModulePlan, PlansFewMicroBatchCountsEagerlyAndOthersOnDemand) {
  std::vector<int> asked;
  const ModulePlan plan = planned_for(1000, asked, [](int) { return FullyShard<>{}.rules(); });
  EXPECT_EQ(asked, (std::vector{1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 12, 13, 14, 15, 500, 250, 125, 62, 31, 1000}));
  EXPECT_EQ(plan.planned(sharding::Pass::train, 0, 17).problem.micro_batches, 17);
  EXPECT_EQ(asked.back(), 17);
}

TEST(ModulePlan, RefusesAScheduleThatNeedsMoreMemoryThanPlanned) {
  std::vector<int> asked;
  const ModulePlan plan = planned_for(40, asked, [](int micro_batches) {
    return sharding::Rules{.hold = micro_batches == 17 ? sharding::Hold::step : sharding::Hold::use};
  });
  EXPECT_NO_THROW(plan.planned(sharding::Pass::train, 0, 18));
  EXPECT_INPUT_ERROR(plan.planned(sharding::Pass::train, 0, 17),
                     "train: the strategy's schedule of 17 micro-batches takes larger slots than its schedules of 40");
}

TEST(ModulePlan, ReportsTheLargestPossibleNumberOfMicroBatches) {
  std::vector<int> asked;
  const auto rules_of = [](int) { return FullyShard<>{}.rules(); };
  EXPECT_INPUT_ERROR(planned_for(1 << 20, asked, rules_of),
                     "sharded module: 1048576 micro-batches of 10 computations each; a step has at most 1048576 "
                     "computations, so that at most 104857 of these micro-batches are possible");
  EXPECT_THROW(planned_for(std::numeric_limits<int>::max(), asked, rules_of), InputError);
}

/// The following tests train.
RunResults trained(std::string_view stack, int ranks, const UnitOptions& units, int micro_batches = 1) {
  RunOptions options = with_steps(4, uneven_options(ranks, micro_batches));
  options.units = units;
  options.evaluated = some_windows(1, 7, 37);
  const RunResults results = run(stack, options);
  for (const Memory& memory : results.memory) EXPECT_EQ(memory.used, memory.planned) << stack;
  return results;
}

TEST(UnitOptions, GroupingOptionsGiveBitIdenticalResults) {
  for (const auto stack : {"fsdp2", "zero1", "zero3", "fsdp2:2", "hybrid:2"}) {
    SCOPED_TRACE(stack);
    const RunResults first = trained(stack, 2, {}, 2);
    for (const UnitOptions& units :
         {UnitOptions{.blocks_per_unit = 2}, UnitOptions{.merge_below = 5000}, UnitOptions{.keep_last_block = false},
          UnitOptions{.blocks_per_unit = 2, .recompute = true}, UnitOptions{.merge_below = 5000, .recompute = true}}) {
      const RunResults other = trained(stack, 2, units, 2);
      EXPECT_EQ(other.losses, first.losses);
      EXPECT_EQ(tensors_that_differ(other.weights, first.weights), Names{});
      EXPECT_EQ(other.last_evaluation, first.last_evaluation);
    }
  }
}

TEST(UnitOptions, PersistentTensorsAndLiveBoundGiveBitIdenticalResults) {
  const RunResults first = trained("zero3", 3, {});
  for (const auto stack : {"zero3:persist=19", "zero3:persist=400", "zero3:live=3000", "zero3:prefetch=3:live=4000",
                           "zero3:prefetch=0", "fsdp2:prefetch=2"}) {
    const RunResults other = trained(stack, 3, {});
    EXPECT_EQ(other.losses, first.losses) << stack;
    EXPECT_EQ(tensors_that_differ(other.weights, first.weights), Names{}) << stack;
    EXPECT_EQ(other.last_evaluation, first.last_evaluation) << stack;
  }
}

TEST(UnitOptions, AReplicatedModuleIsTrainedLikeTheOthers) {
  for (const auto stack : {"fsdp2", "zero3", "hybrid:2", "hybrid:2:full"})
    for (const int micro_batches : sampled({1, 2})) {
      const RunResults first = trained(stack, 4, {}, micro_batches);
      const RunResults other =
          trained(stack, 4, {.replicated = {"model.embed_tokens.weight", "*norm.weight"}}, micro_batches);
      EXPECT_LE(largest_relative(other.losses, first.losses), 1e-6) << stack;
      EXPECT_LE(largest_relative(other.norms, first.norms), 1e-5) << stack;
      EXPECT_LE(largest_relative(other.weights, first.weights), 1e-4) << stack;
    }
}

/// Names of the parameters that a run has changed.
Names moved(const RunResults& results) { return tensors_that_differ(results.weights, results.initial); }

TEST(UnitOptions, FrozenParametersStayUnchangedAndTheOthersTrain) {
  for (const auto stack : {"fsdp2", "zero1", "zero3", "hybrid:2:full", "replicated"}) {
    SCOPED_TRACE(stack);
    const RunResults head = trained(stack, 2, {.frozen = {"model.*"}}, 2);
    EXPECT_EQ(moved(head), Names{"lm_head.weight"});
    const RunResults norms = trained(stack, 2, {.frozen = {"*proj.weight", "*embed*", "lm_head*"}});
    EXPECT_EQ(moved(norms).size(), 7u);
    for (const std::string& name : moved(norms)) expect_parts(name, {"norm"});
    const RunResults table = trained(stack, 2, {.frozen = {"model.embed_tokens.weight"}});
    EXPECT_EQ(moved(table).size(), 29u);
  }
}

TEST(UnitOptions, FreezingSomeParametersKeepsTheGradientsOfTheOthers) {
  const RunResults all = trained("fsdp2", 2, {});
  for (const Names& frozen :
       {Names{"model.layers.0.*", "*embed*"}, Names{"*.mlp.*"}, Names{"*layernorm*", "lm_head*"}}) {
    const RunResults some = trained("fsdp2", 2, {.frozen = frozen});
    for (const auto& [name, gradient] : some.gradients) {
      if (matches_any(frozen, name)) continue;
      EXPECT_LE(relative(gradient, all.gradients.at(name)), 1e-6) << name;
    }
  }
}

TEST(UnitOptions, FrozenWeightsCanBeComputedInBlocksOfColumns) {
  RunOptions options = with_steps(3, uneven_options(2));
  options.units.frozen = {"*gate_proj*", "*down_proj*", "lm_head*"};
  const RunResults whole = run("fsdp2", options);
  options.tiling =
      tiling::RunTimeTiling::budget(1500);  // less than one row of gate, up and h, or of logits, for a few tokens
  const RunResults blocked = run("fsdp2", options);
  EXPECT_LE(largest_relative(blocked.losses, whole.losses), 1e-6);
  EXPECT_LE(largest_relative(blocked.weights, whole.weights), 1e-4);
}

TEST(UnitOptions, AFrozenPrefixSavesMemoryAndCollectives) {
  const RunResults all = trained("fsdp2", 2, {});
  const RunResults top = trained("fsdp2", 2, {.frozen = {"*embed*", "model.layers.0.*", "model.layers.1.*"}});
  using device::MemoryKind;
  for (const auto kind : {MemoryKind::activations, MemoryKind::gradients, MemoryKind::optimizer})
    EXPECT_LT(top.memory[0].used[static_cast<std::size_t>(kind)], all.memory[0].used[static_cast<std::size_t>(kind)]);
  const auto count = [](const RunResults& results, comm::Op op) {
    return std::count_if(results.records.begin(), results.records.end(),
                         [&](const auto& event) { return event.op == op; });
  };
  EXPECT_EQ(count(top, comm::Op::all_gather), 5);      // each unit once: the last block stays gathered
  EXPECT_EQ(count(top, comm::Op::reduce_scatter), 2);  // last block and head
}

}  // namespace
}  // namespace fsdp::test
