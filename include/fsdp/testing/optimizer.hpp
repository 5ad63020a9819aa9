// SPDX-License-Identifier: Apache-2.0
/// @file
/// The suite of an optimizer: what one update may touch and depend on, and training over ranks.
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
#include <exception>
#include <map>
#include <string>
#include <string_view>
#include <type_traits>
#include <vector>

#include <gtest/gtest.h>

#include <tessera/fsdp/core/has_member.hpp>
#include <tessera/fsdp/optim/optimizer.hpp>
#include <tessera/fsdp/testing/optimizer_runs.hpp>
#include <tessera/fsdp/testing/optimizer_updates.hpp>
#include <tessera/fsdp/testing/planned_bytes.hpp>
#include <tessera/fsdp/testing/report.hpp>
#include <tessera/fsdp/testing/temporary_folder.hpp>

namespace fsdp::testing {
namespace detail {

FSDP_TESTED_VALUES(optimizers, optimizer, constants, Optimizer)
FSDP_HAS_MEMBER(lr)

/// Trains and calls expect(found) with the run. An error of the run is a failure.
template <class Expect>
bool with_run(std::string_view asked, std::string_view where, const AnyOptimizer& optimizer, const OptimizerRun& run,
              Expect expect) {
  try {
    return expect(train_with(optimizer, run));
  } catch (const std::exception& error) {
    return fail(asked, where, message("training ended with an error: ", error.what()));
  }
}

inline bool expect_same_tensors(std::string_view asked, std::string_view where,
                                const std::map<std::string, std::vector<float>>& found,
                                const std::map<std::string, std::vector<float>>& expected) {
  for (const auto& [name, values] : expected) {
    const auto at = found.find(name);
    if (at == found.end()) return fail(asked, where, message("no rank holds ", name));
    if (!expect_values(asked, where, name, at->second, values)) return false;
  }
  return found.size() == expected.size() ||
         fail(asked, where, message(found.size(), " tensors instead of ", expected.size()));
}

inline bool expect_same_run(std::string_view asked, std::string_view where, const StrategyRun& found,
                            const StrategyRun& expected) {
  return expect_values(asked, where, "the losses of the steps", found.losses, expected.losses) &&
         expect_same_tensors(asked, where, found.weights, expected.weights) &&
         expect_same_tensors(asked, where, found.states, expected.states);
}

/// Returns cases with frozen and with merged units, and with a tied weight.
inline std::vector<StrategyCase> optimizer_cases() {
  return {{.ranks = 2},
          {.ranks = 3},
          {.ranks = 3, .tied = true},
          {.ranks = 2, .units = {.blocks_per_unit = 2}},
          {.ranks = 3, .units = {.frozen = {"model.layers.1.*"}}}};
}

}  // namespace detail

/// Checks that ranks that step shards get the results of ranks that step everything.
inline void check_optimizer_on_shards(const AnyOptimizer& optimizer, double lr = 1e-2) {
  constexpr std::string_view asked =
      "ranks that step their shards alone (whole tensors, with Grain::tensors) have the losses, weights and states of "
      "ranks that step everything, to the bit";
  for (const StrategyCase& how : detail::optimizer_cases()) {
    const std::string where = how.in_words();
    const bool good = detail::with_run(
        asked, where, optimizer, {.place = OptimizerPlace::replicated, .how = how, .lr = lr},
        [&](const StrategyRun& expected) {
          return expect_planned_bytes(message(where, ", every rank stepping all"), 0, expected.taken,
                                      expected.planned) &&
                 detail::with_run(asked, where, optimizer, {.how = how, .lr = lr}, [&](const StrategyRun& found) {
                   return detail::expect_same_run(asked, where, found, expected) &&
                          expect_planned_bytes(where, 0, found.taken, found.planned);
                 });
        });
    if (!good) return;
  }
}

/// Checks that one rank gets the results of three, and that the optimizer learns.
inline void check_optimizer_learns(const AnyOptimizer& optimizer, double lr = 1e-2) {
  const std::string where = message("learning rate ", lr);
  constexpr std::string_view learns = "the loss on the same tokens falls in four steps";
  constexpr std::string_view follows =
      "three ranks have the losses of one rank on the same tokens, within 1e-3 of them";
  detail::with_run(learns, where, optimizer, {.how = {.ranks = 3}, .lr = lr}, [&](const StrategyRun& found) {
    if (!(found.losses.back() < found.losses.front()))
      return fail(learns, where,
                  message("losses from ", in_words(found.losses.front()), " to ", in_words(found.losses.back())));
    const OptimizerRun alone{.how = {.ranks = 1, .micro_batches = 3}, .lr = lr, .as_ranks = true};
    return detail::with_run(follows, where, optimizer, alone, [&](const StrategyRun& expected) {
      for (std::size_t step = 0; step < expected.losses.size(); ++step)
        if (!(std::abs(found.losses[step] - expected.losses[step]) <= 1e-3 * std::abs(expected.losses[step])))
          return fail(follows, where,
                      message("the loss of step ", step, " is ", in_words(found.losses[step]), " instead of ",
                              in_words(expected.losses[step])));
      return true;
    });
  });
}

/// Checks that checkpoints hold the optimizer's full state.
inline void check_optimizer_resumes(const AnyOptimizer& optimizer, double lr = 1e-2) {
  constexpr std::string_view asked =
      "a run that goes on from a checkpoint has the losses, weights and states of a run that never stopped, to the "
      "bit: "
      "an optimizer keeps nothing but its states";
  const StrategyCase how{.ranks = 3};
  const std::string where = message(how.in_words(), ", six steps, a checkpoint after three");
  const TemporaryFolder folder;
  const OptimizerRun first{.how = how, .steps = 3, .lr = lr, .save_to = folder.path()};
  const OptimizerRun second{.how = how, .steps = 6, .lr = lr, .resume = folder.path()};
  detail::with_run(asked, where, optimizer, {.how = how, .steps = 6, .lr = lr}, [&](StrategyRun whole) {
    whole.losses.erase(whole.losses.begin(), whole.losses.begin() + 3);
    return detail::with_run(asked, where, optimizer, first, [&](const StrategyRun&) {
      return detail::with_run(asked, where, optimizer, second, [&](const StrategyRun& found) {
        return detail::expect_same_run(asked, where, found, whole);
      });
    });
  });
}

/// Checks an offloaded optimizer, whose pieces are stepped in chunks in host memory.
inline void check_optimizer_offloads(const AnyOptimizer& optimizer, double lr = 1e-2) {
  if (optimizer.grain() == optim::Grain::tensors) return;
  constexpr std::string_view asked =
      "an optimizer whose weights and states live in host memory has the bits of one on the device";
  const StrategyCase how{.ranks = 3};
  const std::string where = how.in_words();
  const OptimizerRun offloaded{.place = OptimizerPlace::offloaded, .how = how, .lr = lr};
  detail::with_run(asked, where, optimizer, {.how = how, .lr = lr}, [&](const StrategyRun& expected) {
    return detail::with_run(asked, where, optimizer, offloaded, [&](const StrategyRun& found) {
      return detail::expect_same_run(asked, where, found, expected) &&
             expect_planned_bytes(where, 0, found.taken, found.planned);
    });
  });
}

/// The suite. Its parameter is an optimizer with a default constructor, or a struct with optimizers() and optionally
/// `lr`.
template <class Tested>
class OptimizerSuite : public ::testing::Test {
 protected:
  /// The learning rate of its runs.
  static constexpr double lr() {
    if constexpr (detail::has_lr<Tested>()) return Tested::lr;
    return 1e-2;
  }
  /// Calls check(optimizer) for every value.
  template <class Check>
  static void each(Check check) {
    for (const auto& optimizer : detail::optimizers_of<Tested>()) {
      static_assert(optim::check_optimizer<std::remove_cvref_t<decltype(optimizer)>>());
      const ::testing::ScopedTrace trace(__FILE__, __LINE__, std::string(optimizer.name()));
      check(optimizer);
    }
  }
};
TYPED_TEST_SUITE_P(OptimizerSuite);
GTEST_ALLOW_UNINSTANTIATED_PARAMETERIZED_TEST(OptimizerSuite);  // checks may be called without it

#define FSDP_OPTIMIZER(test, ...)                                            \
  TYPED_TEST_P(OptimizerSuite, test) {                                       \
    this->each([]([[maybe_unused]] const auto& optimizer) { __VA_ARGS__; }); \
  }
FSDP_OPTIMIZER(NamesItselfAndItsStates, check_optimizer_names(optimizer))
FSDP_OPTIMIZER(StepsItsPieceAlone, check_optimizer_steps<float>(optimizer); check_optimizer_steps<bf16>(optimizer))
FSDP_OPTIMIZER(StepsPiecesAsTheWhole, check_optimizer_cuts(optimizer))
FSDP_OPTIMIZER(ScalesItsGradient, check_optimizer_scale(optimizer))
FSDP_OPTIMIZER(IsCountedByDryRuns, check_optimizer_counts(optimizer))
FSDP_OPTIMIZER(IsReplayedByGraphs, check_optimizer_replays(optimizer))
FSDP_OPTIMIZER(StepsShardsAsTheWhole, check_optimizer_on_shards(AnyOptimizer(optimizer), TestFixture::lr()))
FSDP_OPTIMIZER(Learns, check_optimizer_learns(AnyOptimizer(optimizer), TestFixture::lr()))
FSDP_OPTIMIZER(GoesOnFromACheckpoint, check_optimizer_resumes(AnyOptimizer(optimizer), TestFixture::lr()))
FSDP_OPTIMIZER(WorksInHostMemory, check_optimizer_offloads(AnyOptimizer(optimizer), TestFixture::lr()))
#undef FSDP_OPTIMIZER

REGISTER_TYPED_TEST_SUITE_P(OptimizerSuite, NamesItselfAndItsStates, StepsItsPieceAlone, StepsPiecesAsTheWhole,
                            ScalesItsGradient, IsCountedByDryRuns, IsReplayedByGraphs, StepsShardsAsTheWhole, Learns,
                            GoesOnFromACheckpoint, WorksInHostMemory);

}  // namespace fsdp::testing
