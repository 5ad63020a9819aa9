// SPDX-License-Identifier: Apache-2.0
/// @file
/// The suite of an optimizer: the memory that an update may access, the values that it may depend on, and training over
/// ranks.
///
///     using namespace fsdp::testing;
///     INSTANTIATE_TYPED_TEST_SUITE_P(Mine, OptimizerSuite, mine::Lion);
///
/// The parameter is an optimizer with a default constructor, or a struct with `static std::vector<Optimizer>
/// optimizers()`, the values to test, and optionally `static constexpr double lr`, a learning rate other than 0.01.
/// Updates are tested in float and bf16 on the CPU, its dry run and the asynchronous test device; ranks train a small
/// Llama in fp32.
#pragma once

#include <cmath>
#include <filesystem>
#include <string>
#include <string_view>
#include <type_traits>
#include <vector>

#include <gtest/gtest.h>

#include <tessera/fsdp/optim/optimizer.hpp>
#include <tessera/fsdp/testing/optimizer_runs.hpp>
#include <tessera/fsdp/testing/optimizer_updates.hpp>
#include <tessera/fsdp/testing/report.hpp>
#include <tessera/fsdp/testing/results.hpp>

namespace fsdp::testing {
namespace detail {

FSDP_TESTED_VALUES(optimizers, optimizer, constants, Optimizer)

/// Trains. An error of the run is a failure, and nullopt is returned.
inline std::optional<RunResult> trained(std::string_view asked, const Where& where, const AnyOptimizer& optimizer,
                                        const OptimizerRun& run) {
  return result_of(asked, where, [&] { return train_with(optimizer, run); });
}

/// Compares the bytes of the first rank only: other ranks may use less than planned, because they have fewer targets.
inline bool expect_planned_bytes_of_first(std::string_view where, const RunResult& found) {
  return expect_planned_bytes(where, 0, found.taken[0], found.planned[0]);
}

}  // namespace detail

/// Checks that ranks that update shards get the results of ranks that update all parameters.
inline void check_optimizer_on_shards(const AnyOptimizer& optimizer, double lr = 1e-2) {
  constexpr std::string_view asked =
      "ranks that step their shards alone (whole tensors, with Grain::tensors) have the losses, weights and states of "
      "ranks that step everything, to the bit";
  const std::vector<StrategyCase> cases = {{.ranks = 2},
                                           {.ranks = 3},
                                           {.ranks = 3, .tied = true},
                                           {.ranks = 2, .units = {.blocks_per_unit = 2}},
                                           {.ranks = 3, .units = {.frozen = {"model.layers.1.*"}}}};
  for (const StrategyCase& how : cases) {
    const std::string where = how.in_words();
    const OptimizerRun all{.place = OptimizerPlace::replicated, .how = how, .lr = lr};
    const auto expected = detail::trained(asked, where, optimizer, all);
    if (!expected || !detail::expect_planned_bytes_of_first(message(where, ", every rank stepping all"), *expected))
      return;
    const auto found = detail::trained(asked, where, optimizer, {.how = how, .lr = lr});
    if (!found || !expect_same_run(asked, where, *found, *expected) ||
        !detail::expect_planned_bytes_of_first(where, *found))
      return;
  }
}

/// Checks that one rank gets the results of three ranks, and that the optimizer learns.
inline void check_optimizer_learns(const AnyOptimizer& optimizer, double lr = 1e-2) {
  const std::string where = message("learning rate ", lr);
  constexpr std::string_view learns = "the loss on the same tokens falls in four steps";
  constexpr std::string_view follows =
      "three ranks have the losses of one rank on the same tokens, within 1e-3 of them";
  const auto found = detail::trained(learns, where, optimizer, {.how = {.ranks = 3}, .lr = lr});
  if (!found) return;
  if (!(found->losses.back() < found->losses.front()))
    return void(
        fail(learns, where, "losses from ", in_words(found->losses.front()), " to ", in_words(found->losses.back())));
  const OptimizerRun alone{.how = {.ranks = 1, .micro_batches = 3}, .lr = lr, .as_ranks = true};
  const auto expected = detail::trained(follows, where, optimizer, alone);
  for (std::size_t step = 0; expected && step < expected->losses.size(); ++step)
    if (!(std::abs(found->losses[step] - expected->losses[step]) <= 1e-3 * std::abs(expected->losses[step])))
      return void(fail(follows, where, "the loss of step ", step, " is ", in_words(found->losses[step]), " instead of ",
                       in_words(expected->losses[step])));
}

/// Checks that checkpoints contain the optimizer's full state.
inline void check_optimizer_resumes(const AnyOptimizer& optimizer, double lr = 1e-2) {
  constexpr std::string_view asked =
      "a run that goes on from a checkpoint has the losses, weights and states of a run that never stopped, to the "
      "bit: an optimizer keeps nothing but its states";
  const StrategyCase how{.ranks = 3};
  const std::string where = message(how.in_words(), ", six steps, a checkpoint after three");
  check_resumes(
      asked, where, [&](int steps, const std::filesystem::path& save_to, const std::filesystem::path& resume) {
        return train_with(optimizer, {.how = how, .steps = steps, .lr = lr, .save_to = save_to, .resume = resume});
      });
}

/// Checks an offloaded optimizer, whose pieces are updated in chunks in host memory.
inline void check_optimizer_offloads(const AnyOptimizer& optimizer, double lr = 1e-2) {
  if (optimizer.grain() == optim::Grain::tensors) return;
  constexpr std::string_view asked =
      "an optimizer whose weights and states live in host memory has the bits of one on the device";
  const StrategyCase how{.ranks = 3};
  const std::string where = how.in_words();
  const OptimizerRun offloaded{.place = OptimizerPlace::offloaded, .how = how, .lr = lr};
  const auto expected = detail::trained(asked, where, optimizer, {.how = how, .lr = lr});
  const auto found = detail::trained(asked, where, optimizer, offloaded);
  if (expected && found && expect_same_run(asked, where, *found, *expected))
    detail::expect_planned_bytes_of_first(where, *found);
}

/// The suite. Its parameter is an optimizer with a default constructor, or a struct with optimizers() and optionally
/// `lr`.
template <class Tested>
class OptimizerSuite : public ::testing::Test {
 protected:
  using Optimizer = typename decltype(detail::optimizers_of<Tested>())::value_type;
  static_assert(optim::check_optimizer<Optimizer>());

  /// Calls check(optimizer) for each of the optimizers.
  static void each(void (*check)(const Optimizer&)) { each_value("optimizer", detail::optimizers_of<Tested>(), check); }
  /// Calls `check` with each optimizer of the suite and its learning rate.
  static void each_over_ranks(void (*check)(const AnyOptimizer&, double lr)) {
    each_value("optimizer", detail::optimizers_of<Tested>(),
               [&](const Optimizer& optimizer) { check(AnyOptimizer(optimizer), detail::lr_of<Tested>()); });
  }
};

FSDP_SUITE(OptimizerSuite, (NamesItselfAndItsStates, this->each(check_optimizer_names)),
           (StepsItsPieceAlone, this->each(check_optimizer_steps<float>), this->each(check_optimizer_steps<bf16>)),
           (StepsPiecesAsTheWhole, this->each(check_optimizer_cuts)),
           (ScalesItsGradient, this->each(check_optimizer_scale)),
           (IsCountedByDryRuns, this->each(check_optimizer_counts)),
           (IsReplayedByGraphs, this->each(check_optimizer_replays)),
           (StepsShardsAsTheWhole, this->each_over_ranks(check_optimizer_on_shards)),
           (Learns, this->each_over_ranks(check_optimizer_learns)),
           (GoesOnFromACheckpoint, this->each_over_ranks(check_optimizer_resumes)),
           (WorksInHostMemory, this->each_over_ranks(check_optimizer_offloads)));

}  // namespace fsdp::testing
