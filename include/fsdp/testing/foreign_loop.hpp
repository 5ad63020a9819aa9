// SPDX-License-Identifier: Apache-2.0
/// @file
/// The suite of a user-defined training loop (tessera/fsdp/sharded.hpp): results agree under every kind of strategy and
/// with one rank; the contribution of each piece is divided by the samples of the step; the loop uses the planned
/// memory; an exception or a rank that forfeits, at any computation, has no lasting effect. It needs neither modules
/// nor models.
///
///     struct MyLoop {
///       static std::vector<fsdp::Unit> units();
///       /// Runs forward and backward of piece `piece` of `pieces`. Returns its contribution to the step's loss.
///       template <class Pass>
///       static double compute(Pass& pass, int step, int piece, int pieces);
///     };
///     INSTANTIATE_TYPED_TEST_SUITE_P(Mine, ForeignLoopSuite, MyLoop);
///
/// `compute` calls the members of fsdp::Pass: forward, backward, both, enter, next, poll and progress. It must depend
/// only on its arguments and the weights. The contributions of all pieces add up to the loss, and likewise for
/// gradients: a piece divides by the samples of the step, not by its own samples. The pieces either divide the samples
/// of a step among them, or each has its own samples, which are the same for any number of pieces. A step has up to 6
/// pieces, and the loop is trained about 100 times for 3 steps by gradient descent, so make it small.
///
/// Optional members: `static fsdp::Order order()`, the order of computations (default: the chain of the units);
/// `static fsdp::UnitOptions unit_options()`, such as frozen tensors; `static constexpr double lr`, a learning rate
/// other than 0.01 of gradients with a norm of at most 1.
#pragma once

#include <tessera/fsdp/core/language.hpp>  // must precede all other includes

#include <algorithm>
#include <cmath>
#include <cstddef>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include <gtest/gtest.h>

#include <tessera/fsdp/module/host_weights.hpp>
#include <tessera/fsdp/sharding/run_time.hpp>
#include <tessera/fsdp/sharding/strategies.hpp>
#include <tessera/fsdp/testing/foreign_runs.hpp>
#include <tessera/fsdp/testing/report.hpp>
#include <tessera/fsdp/testing/results.hpp>
#include <tessera/fsdp/testing/suite.hpp>

namespace fsdp::testing {

inline constexpr std::string_view foreign_ends_without_error = "a loop of one's own trains without an error";

namespace detail {

/// Trains the loop. An error of the run is a failure, and nullopt is returned.
template <class Loop, class Strategy>
std::optional<RunResult> trained(const ForeignRun<Strategy>& run) {
  return result_of(
      foreign_ends_without_error, run.in_words(), [&] { return run_foreign<Loop>(run); }, "an error: ");
}

/// Trains the loop and checks that the result is bit-identical to `expected`.
template <class Loop, class Strategy>
bool expect_foreign(std::string_view asked, const ForeignRun<Strategy>& run, const RunResult& expected) {
  const auto found = trained<Loop>(run);
  return found && expect_same_run(asked, run.in_words(), *found, expected);
}

inline ForeignRun<RunTimeAny> foreign_fsdp2(int ranks, int micro_batches) {
  return {.ranks = ranks, .micro_batches = micro_batches, .strategy = {FullyShard<>{}}};
}

}  // namespace detail

/// Checks that several ranks get the results of one rank, and that all strategies get the same results.
template <class Loop>
void check_foreign_strategies() {
  constexpr std::string_view equal =
      "strategies that add in the same order have the same losses and weights, to the bit";
  constexpr std::string_view near =
      "one rank, and strategies that add in another order, have the losses and weights of fsdp2, within 1e-5";
  const auto expect_equal = [&](const RunResult& expected, const auto& run) {
    return detail::expect_foreign<Loop>(equal, run, expected);
  };
  const auto expect_near = [&](const RunResult& expected, const auto& run) {
    const auto found = detail::trained<Loop>(run);
    return found && expect_near_run(near, run.in_words(), *found, expected);
  };
  const auto sharded = [](int ranks, int micro_batches, const RunTimeAny& strategy) {
    return ForeignRun<RunTimeAny>{.ranks = ranks, .micro_batches = micro_batches, .strategy = strategy};
  };
  if (const auto first = detail::trained<Loop>(detail::foreign_fsdp2(3, 2)))
    void(expect_near(*first, detail::foreign_fsdp2(1, 6)) &&
         expect_equal(*first, sharded(3, 2, {FullyShard<ReshardAfterForward::no>{.prefetch_depth = 3}})) &&
         expect_equal(*first, sharded(3, 2, {Zero3{.persistence_threshold = 20}})) &&
         expect_equal(*first, sharded(3, 2, {Zero2{}})) && expect_near(*first, sharded(3, 2, {Zero1{}})));
  if (const auto first = detail::trained<Loop>(sharded(3, 2, {Zero1{}})))
    expect_equal(*first, sharded(3, 2, {Replicated{}}));
  const HybridShard<RunTimeSharded> hybrid{.group = 2, .inner = {FullyShard<>{}}};
  if (const auto first = detail::trained<Loop>(detail::foreign_fsdp2(4, 1)))
    void(expect_equal(*first, sharded(4, 1, {Zero1{}})) && expect_near(*first, detail::foreign_fsdp2(2, 2)) &&
         expect_near(*first, sharded(4, 1, {hybrid})));
}

/// Checks that every trainable tensor gets a gradient: three steps change all trainable tensors and no frozen tensor.
/// Each unit is frozen once.
template <class Loop>
void check_foreign_gradients() {
  constexpr std::string_view asked =
      "three steps change every tensor that is trained, and none that is frozen, whichever unit a setting freezes: ask "
      "GradientView::wanted() before a gradient is written, and pass gradients on to other units all the same";
  UnitOptions unit_options;
  if constexpr (detail::has_unit_options<Loop>()) unit_options = Loop::unit_options();
  std::vector<std::string> frozen = unit_options.frozen;
  for (const OptimizerGroup& group : unit_options.groups)
    if (group.frozen)
      for (const Parameter& parameter : parameters_of(group, Loop::units())) frozen.push_back(parameter.name);
  auto begin = detail::foreign_fsdp2(2, 1);
  begin.steps = {};
  const auto first = detail::trained<Loop>(begin);
  const auto check = [&](const ForeignRun<RunTimeAny>& run) {
    const auto found = detail::trained<Loop>(run);
    bool good = found.has_value();
    for (const Unit& unit : Loop::units())
      for (const Parameter& parameter : unit.parameters) {
        const std::string& name = parameter.name;
        const bool trains = !matches_any(frozen, name) && !matches_any(run.frozen, name);
        if (found && unit.gathered && trains == (found->weights.at(name) == first->weights.at(name)))
          good = fail(asked, run.in_words(), message(name, trains ? " is as it was" : " is frozen, and has changed"));
      }
    return good;
  };
  bool good = first && check(detail::foreign_fsdp2(2, 1));
  for (const Unit& unit : Loop::units()) {
    auto run = detail::foreign_fsdp2(2, 1);
    run.frozen_unit = unit.name;
    for (const Parameter& parameter : unit.parameters) run.frozen.push_back(parameter.name);
    const std::vector<Parameter> all = distinct_parameters(Loop::units());
    const auto trains = [&](const Parameter& own) {
      return !matches_any(frozen, own.name) && !matches_any(run.frozen, own.name);
    };
    if (good && unit.gathered && !unit.parameters.empty() && std::ranges::any_of(all, trains)) good = check(run);
  }
}

namespace detail {

/// Returns the loss and, in place of weights, the gradients of the first `computed` pieces of a step of `pieces`,
/// computed with the initial weights on one rank.
template <class Loop>
RunResult foreign_gradients(int pieces, int computed) {
  RunResult result;
  comm::Threads<>::run(1, {}, [&](comm::Threads<>& communicator) {
    LoopSharded<RunTimeAny> sharded(communicator, Loop::units(), {FullyShard<>{}}, foreign_settings<Loop>(computed));
    sharded.initialize(3);
    auto pass = sharded.train();
    InterruptedPass<typename LoopSharded<RunTimeAny>::Stack> watched(pass, -1);
    double& loss = result.losses.emplace_back(0);
    for (int piece = 0; piece < computed; ++piece) loss += Loop::compute(watched, 0, piece, pieces);
    pass.finish();
    with_full_gradients(sharded.module(), {"*"}, [&](const Parameter& parameter, Tensor<const float> values) {
      result.weights[parameter.name].assign(values.data(), values.data() + values.numel());
    });
  });
  return result;
}

/// Whether loss and gradients are `factor` times the loss and gradients of another step. The tolerance is 1e-5 of the
/// loss, and for gradients 1e-5 of the tensor's largest gradient plus 1e-6 of the largest gradient of all.
inline bool is_multiple(const RunResult& found, double factor, const RunResult& of) {
  double largest = 0;
  for (const auto& [name, gradients] : of.weights)
    for (const float value : gradients) largest = std::max(largest, std::abs(static_cast<double>(value)));
  const double loss = factor * of.losses.front();
  bool same = std::abs(found.losses.front() - loss) <= 1e-5 * std::abs(loss);
  for (const auto& [name, gradients] : of.weights) {
    double own = 0;
    for (const float value : gradients) own = std::max(own, std::abs(static_cast<double>(value)));
    const std::vector<float>& others = found.weights.at(name);
    for (std::size_t i = 0; i < gradients.size(); ++i)
      same = same && std::abs(static_cast<double>(others[i]) - factor * static_cast<double>(gradients[i])) <=
                         factor * (1e-5 * own + 1e-6 * largest);
  }
  return same;
}

}  // namespace detail

/// Checks that the contribution of a piece is divided by the samples of the step: a step of one piece is compared with
/// steps of two and of six. If pieces divide the samples of a step among them, all steps have the same loss and
/// gradients. If each piece has its own samples, loss and gradients of the first piece shrink by the same factor as
/// other pieces are added.
template <class Loop>
void check_foreign_shares() {
  constexpr std::string_view asked =
      "the parts of a step's pieces are divided by the samples of the step, not by those of the piece: loss and "
      "gradients of a step do not depend on the number of pieces, or, where each piece has samples of its own, its "
      "part is smaller the more pieces there are";
  std::string where = "1 piece";
  try {
    const RunResult one = detail::foreign_gradients<Loop>(1, 1);
    bool shared = true, own = true;
    double before = 1;
    for (const int pieces : {2, 6}) {
      where = message("1 rank, ", pieces, " pieces");
      const RunResult all = detail::foreign_gradients<Loop>(pieces, pieces);
      const RunResult first = detail::foreign_gradients<Loop>(pieces, 1);
      const double factor = first.losses.front() / one.losses.front();
      shared = shared && detail::is_multiple(all, 1, one);
      own = own && factor > 0 && factor < 0.999 * before && detail::is_multiple(first, factor, one);
      before = factor;
      if (!shared && !own)
        return void(fail(asked, where,
                         message("the loss of the first piece is ", in_words(first.losses.front()),
                                 ", that of all pieces ", in_words(all.losses.front()), ", and that of a single piece ",
                                 in_words(one.losses.front()), "; gradients do not follow the one or the other")));
    }
  } catch (const std::exception& error) {
    fail(foreign_ends_without_error, where, message("an error: ", error.what()));
  }
}

/// Checks that every rank uses the planned bytes.
template <class Loop>
void check_foreign_bytes() {
  const auto check = [](const auto& run) {
    if (const auto found = detail::trained<Loop>(run)) expect_planned_bytes(run.in_words(), *found);
  };
  check(detail::foreign_fsdp2(1, 2));
  check(detail::foreign_fsdp2(3, 1));
  check(ForeignRun<RunTimeAny>{.ranks = 2, .micro_batches = 2, .strategy = {Zero1{}}});
  check(ForeignRun<RunTimeAny>{.ranks = 2, .strategy = {Replicated{}}});
}

/// Checks that an exception in any computation, if all ranks throw and catch it, affects neither the step, which is
/// then repeated, nor later steps.
template <class Loop>
void check_foreign_exceptions() {
  constexpr std::string_view asked =
      "a step that is made again, after an exception in it that all ranks caught, has the losses and weights of one "
      "without it, to the bit";
  const auto expected = detail::trained<Loop>(detail::foreign_fsdp2(2, 2));
  auto run = detail::foreign_fsdp2(2, 2);
  const int computations = static_cast<int>(2 * foreign_order<Loop>().list.size());
  for (run.interrupted = 0; expected && run.interrupted < computations; ++run.interrupted)
    if (!detail::expect_foreign<Loop>(asked, run, *expected)) return;
}

/// Checks that a rank that forfeits in any computation makes all ranks skip the step, and has no other effect.
template <class Loop>
void check_foreign_forfeits() {
  constexpr std::string_view asked =
      "a step that a rank forfeits is skipped: losses and weights are those of a run without it, to the bit";
  auto without = detail::foreign_fsdp2(3, 1);
  without.steps = {0, 2};
  const auto expected = detail::trained<Loop>(without);
  auto run = detail::foreign_fsdp2(3, 1);
  const int computations = static_cast<int>(foreign_order<Loop>().list.size());
  for (run.forfeits = 0; expected && run.forfeits < run.ranks; ++run.forfeits)
    for (run.interrupted = 0; run.interrupted < computations; ++run.interrupted)
      if (!detail::expect_foreign<Loop>(asked, run, *expected)) return;
}

template <class Loop>
class ForeignLoopSuite : public ::testing::Test {};

FSDP_SUITE(ForeignLoopSuite, (IsTheSameUnderEveryStrategyAndWithOneRank, check_foreign_strategies<TypeParam>()),
           (MakesEveryGradient, check_foreign_gradients<TypeParam>()),
           (DividesByTheSamplesOfTheStep, check_foreign_shares<TypeParam>()),
           (TakesWhatWasPlanned, check_foreign_bytes<TypeParam>()),
           (MakesAStepAgainAfterAnExceptionAnywhere, check_foreign_exceptions<TypeParam>()),
           (SkipsAStepThatARankForfeitsAnywhere, check_foreign_forfeits<TypeParam>()));

}  // namespace fsdp::testing
