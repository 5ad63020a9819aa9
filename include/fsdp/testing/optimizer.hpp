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

#include <gtest/gtest.h>

#include <tessera/fsdp/optim/optimizer.hpp>
#include <tessera/fsdp/testing/optimizer_runs.hpp>
#include <tessera/fsdp/testing/optimizer_updates.hpp>
#include <tessera/fsdp/testing/report.hpp>

namespace fsdp::testing {
namespace detail {

FSDP_TESTED_VALUES(optimizers, optimizer, constants, Optimizer)

}  // namespace detail

/// Checks that ranks that update shards get the results of ranks that update all parameters.
void check_optimizer_on_shards(const AnyOptimizer& optimizer, double lr = 1e-2);
/// Checks that one rank gets the results of three ranks, and that the optimizer learns.
void check_optimizer_learns(const AnyOptimizer& optimizer, double lr = 1e-2);
/// Checks that checkpoints contain the optimizer's full state.
void check_optimizer_resumes(const AnyOptimizer& optimizer, double lr = 1e-2);
/// Checks an offloaded optimizer, whose pieces are updated in chunks in host memory.
void check_optimizer_offloads(const AnyOptimizer& optimizer, double lr = 1e-2);

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
