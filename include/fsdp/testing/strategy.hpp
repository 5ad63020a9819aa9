// SPDX-License-Identifier: Apache-2.0
/// @file
/// The suite of a sharding strategy: its schedules are valid, its results are those of Replicated, it uses the planned
/// bytes, and it starts the collectives of its schedule.
///
///     using namespace fsdp::testing;
///     INSTANTIATE_TYPED_TEST_SUITE_P(Mine, StrategySuite, mine::Sharding);
///
/// The parameter is a strategy with a default constructor, or a struct with `static std::vector<Strategy>
/// strategies()`, the values to test. A small network of odd sizes (strategy_loop.hpp) is trained over Threads in fp32;
/// only tessera::sharding is needed. A strategy on a mesh of two axes is tested on numbers of ranks that are divisible
/// by its ranks_per_group.
#pragma once

#include <algorithm>
#include <exception>
#include <span>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include <gtest/gtest.h>

#include <tessera/comm/simulated.hpp>
#include <tessera/fsdp/core/function_ref.hpp>
#include <tessera/fsdp/device/meta.hpp>
#include <tessera/fsdp/module/sharded_module.hpp>
#include <tessera/fsdp/optim/optimizer.hpp>
#include <tessera/fsdp/sharding/strategies.hpp>
#include <tessera/fsdp/testing/report.hpp>
#include <tessera/fsdp/testing/results.hpp>
#include <tessera/fsdp/testing/strategy_loop.hpp>

namespace fsdp::testing {

/// Returns cases with numbers of ranks that reveal different mistakes, and with every kind of unit.
inline std::vector<StrategyCase> strategy_cases() {
  std::vector<StrategyCase> cases;
  for (const int ranks : {1, 2, 3, 4})
    for (const int micro_batches : {1, 3}) cases.push_back({.ranks = ranks, .micro_batches = micro_batches});
  for (const int ranks : {2, 4}) {
    cases.push_back({.ranks = ranks, .micro_batches = 2, .tied = true});
    cases.push_back({.ranks = ranks, .units = {.blocks_per_unit = 2}});
    cases.push_back({.ranks = ranks, .units = {.replicated = {"*norm*"}}});
    cases.push_back({.ranks = ranks, .micro_batches = 2, .units = {.frozen = {"layers.1.*"}}});
  }
  return cases;
}

namespace detail {

FSDP_TESTED_VALUES(strategies, strategy, numbers, Strategy)

/// Returns the number of ranks in a strategy's groups; 0 if it does not form groups.
template <class Strategy>
int ranks_per_group(const Strategy& strategy) {
  if constexpr (mesh_axes_of<Strategy> == 2) return strategy.ranks_per_group();
  return 0;
}

/// Removes the cases whose numbers of ranks `group`, the ranks of a strategy's groups, does not divide.
inline std::vector<StrategyCase> cases_of(int group, std::vector<StrategyCase> cases) {
  // The run itself rejects a negative number.
  std::erase_if(cases, [&](const StrategyCase& how) { return group > 0 && how.ranks % group != 0; });
  return cases;
}

/// AdamW or SGD, as one type, so that a strategy's stack is compiled once for both.
struct CaseOptimizer {
  bool adamw = true;

  static constexpr std::string_view name() { return "adamw or sgd"; }
  static constexpr optim::Grain grain() { return optim::Grain::elements; }
  static constexpr bool reads_decay = true;
  std::span<const optim::StateSpec> states(const Parameter& parameter) const {
    return adamw ? optim::AdamW{}.states(parameter) : optim::Sgd{}.states(parameter);
  }
  void update(auto& stream, const optim::Update<float>& piece, Tensor<const device::StepDecision> decision) const {
    adamw ? optim::AdamW{}.update(stream, piece, decision) : optim::Sgd{}.update(stream, piece, decision);
  }
  static void visit(auto& self, auto&& visitor) { visitor("adamw", self.adamw, "whether it is AdamW"); }
};

/// Trains by AdamW, or by SGD if sums may differ in their last bits: AdamW divides a gradient by its magnitude, so that
/// elements with a small gradient would differ by much more (by 1e-4, compared with 5e-7 for SGD).
RunResult train_case(const auto& strategy, const StrategyCase& how, bool to_the_bit = true) {
  return train_loop(strategy, how, CaseOptimizer{to_the_bit}, to_the_bit ? 1e-2 : 0.1);
}

/// Calls expect(case), which trains, for every case until one fails. An error of a run is a failure. `group`: the ranks
/// of the strategy's groups, or 0.
inline void check_runs(std::string_view asked, int group, FunctionRef<bool(const StrategyCase&)> expect) {
  const std::vector<StrategyCase> cases = cases_of(group, strategy_cases());
  for (const StrategyCase& how : cases)
    if (!report_errors(
            asked, how, [&] { return expect(how); }, ended_with_error))
      return;
  if (cases.empty()) fail(asked, "1 to 4 ranks", "ranks_per_group() divides none of them");
}

inline std::vector<StrategyCase> list_cases(int group) {
  std::vector<StrategyCase> cases = strategy_cases();
  for (const int micro_batches : {1, 2, 3}) cases.push_back({.ranks = 8, .micro_batches = micro_batches});
  return cases_of(group, std::move(cases));
}

/// Returns the placed schedules of the passes of a purpose, from a dry run. Throws if a schedule is invalid.
template <class Strategy>
std::vector<sharding::Schedule> lists_of(const Strategy& strategy, const StrategyCase& how, Purpose purpose) {
  using Tested = Stack<Strategy, comm::Threads<>, Fp32>;
  using Planned = MetaModuleStack<Tested>;
  comm::Simulated<device::Meta> communicator(comm::simulated_world<comm::Threads<>>(how.ranks, 0));
  ModuleSettings settings;
  settings.passes = {.unit_options = how.units, .micro_batches = how.micro_batches, .purpose = purpose};
  const std::vector<Unit> units = StrategyNet::units(how.tied);
  const ShardedModule<Planned> module(communicator, units, described<Tested, Planned>(strategy), settings);
  using sharding::Pass;
  std::vector<sharding::Schedule> lists;
  for (const Pass pass : {Pass::train, Pass::evaluate, Pass::generate, Pass::generate_again})
    lists.push_back(module.schedule(pass));
  return lists;
}

/// Returns the error of a dry run of the case; empty if there is none.
std::string schedule_error(const auto& strategy, const StrategyCase& how, Purpose purpose) {
  try {
    lists_of(strategy, how, purpose);
  } catch (const std::exception& error) {
    return error.what();
  }
  return {};
}

/// Whether all schedules are valid. If they are not, training would only repeat the same error.
bool has_valid_schedules(const auto& strategy) {
  const auto sound = [&](const StrategyCase& how) {
    return schedule_error(strategy, how, Purpose::train).empty() &&
           schedule_error(strategy, how, Purpose::generate).empty();
  };
  return std::ranges::all_of(list_cases(ranks_per_group(strategy)), sound);
}

}  // namespace detail

/// Checks the schedules of all passes on up to 8 ranks in dry runs, and that a copy of the strategy creates the same
/// schedules.
template <class Strategy>
void check_strategy_lists(const Strategy& strategy) {
  constexpr std::string_view asked =
      "every list of the strategy passes sharding::check: weights are there when they are used, every gradient is "
      "reduced exactly once, no slot has two holders";
  for (const StrategyCase& how : detail::list_cases(detail::ranks_per_group(strategy)))
    for (const Purpose purpose : {Purpose::train, Purpose::generate}) {
      const std::string where =
          message(how.in_words(), purpose == Purpose::train ? ", lists of training and evaluation" : ", of generation");
      const std::string unsound = detail::schedule_error(strategy, how, purpose);
      if (!unsound.empty()) return void(fail(asked, where, unsound));
      const Strategy copy = strategy;
      if (detail::lists_of(strategy, how, purpose) != detail::lists_of(copy, how, purpose))
        return void(fail("a strategy and its copy make the same list whenever they are asked: ranks ask apart", where,
                         "two lists differ"));
    }
}

/// Checks that losses and weights equal those of Replicated.
void check_strategy_trains(const auto& strategy) {
  const int group = detail::ranks_per_group(strategy);
  const bool one_axis = group == 0;
  detail::check_runs("training ends without an error", group, [&](const StrategyCase& how) {
    const bool same_order = one_axis && how.micro_batches == 1;
    const RunResult found = detail::train_case(strategy, how, same_order);
    const RunResult expected = detail::train_case(Replicated{}, how, same_order);
    // Replicated reduces once per step. A reduction in every micro-batch, and a mesh of two axes, sum in another order.
    const bool to_the_bit = same_order || (one_axis && found.reductions == expected.reductions);
    const std::string asked = message("losses and weights are those of Replicated on as many ranks, ",
                                      to_the_bit ? "to the bit" : "within 1e-5 of the largest");
    if (!(expected.losses.back() < expected.losses.front()))
      return fail(asked, how, "Replicated learns nothing, so that nothing is shown");
    return (to_the_bit ? expect_same_run : expect_near_run)(asked, how.in_words(), found, expected);
  });
}

/// Checks that every rank uses the planned bytes.
void check_strategy_memory(const auto& strategy) {
  detail::check_runs(takes_planned_bytes, detail::ranks_per_group(strategy), [&](const StrategyCase& how) {
    return expect_planned_bytes(how, detail::train_case(strategy, how));
  });
}

/// Checks that a step starts the collectives of its schedule and no others.
void check_strategy_collectives(const auto& strategy) {
  constexpr std::string_view asked =
      "a step starts one collective for every gather and every reduction of its list, and no other for weights and "
      "gradients";
  const int group = detail::ranks_per_group(strategy);
  detail::check_runs(asked, group, [&](const StrategyCase& how) {
    const RunResult found = detail::train_case(strategy, how);
    if (how.ranks == 1 || group != 0) return true;  // an axis of one rank does not communicate
    return expect_value(asked, how, "the number of gathers", found.gathered, found.gathers) &&
           expect_value(asked, how, "the number of reductions", found.reduced, found.reductions);
  });
}

/// The suite. Its parameter is a strategy with a default constructor, or a struct with strategies().
template <class Tested>
class StrategySuite : public detail::Tested_strategies<Tested> {
 protected:
  using Strategy = typename detail::Tested_strategies<Tested>::Strategy;

  /// Calls `check` with each strategy whose schedules and layouts are valid.
  static void each_valid(void (*check)(const Strategy&)) {
    each_value("strategy", detail::strategies_of<Tested>(), [&](const Strategy& strategy) {
      if (!detail::has_valid_schedules(strategy)) GTEST_SKIP() << "not run: MakesSoundLists says what is wrong";
      check(strategy);
    });
  }
};

FSDP_SUITE(StrategySuite, (MakesSoundLists, this->each(check_strategy_lists)),
           (TrainsAsReplicatedDoes, this->each_valid(check_strategy_trains)),
           (TakesTheBytesThatWerePlanned, this->each_valid(check_strategy_memory)),
           (SendsWhatItsListSays, this->each_valid(check_strategy_collectives)));

}  // namespace fsdp::testing
