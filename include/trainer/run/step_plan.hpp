// SPDX-License-Identifier: Apache-2.0
/// @file
/// The step that a run's options describe, and the dry run's request for it.
#pragma once

#include <tessera/fsdp/optim/optimizer.hpp>
#include <tessera/fsdp/plan/plan.hpp>
#include <tessera/fsdp/sharding/schedule_of.hpp>
#include <tessera/fsdp/training/step_size.hpp>
#include <tessera/trainer/flags/options.hpp>

namespace fsdp::train {

/// Returns the size of a rank's step for these options and number of ranks. `pieces`: as for check_batch, which it
/// calls.
StepSize step_size(const TrainOptions& options, int ranks, int pieces);

/// Calls require_samples, then returns step_size.
StepSize required_step_size(const TrainOptions& options, int ranks, int pieces, bool writes_text);

/// Returns the dry run's request for these options, for the rank that needs the most memory. `work`: the optimizer's.
plan::Request plan_request(const TrainOptions& options, int ranks, int pieces, StepWork work);
/// The same; takes the pieces from the strategy and the work from the optimizer.
template <class Sharding, class Optimizer>
plan::Request plan_request(const TrainOptions& options, int ranks, const Sharding& sharding,
                           const Optimizer& optimizer) {
  return plan_request(options, ranks, sharding::facts_of(sharding).pieces, optim::step_work(optimizer));
}

}  // namespace fsdp::train
