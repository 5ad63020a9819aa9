// SPDX-License-Identifier: Apache-2.0
/// @file
/// The step that a run's options describe, and the dry run's request for it.
#pragma once

#include <tessera/fsdp/optim/optimizer.hpp>
#include <tessera/fsdp/plan/dry_run.hpp>
#include <tessera/fsdp/training/training.hpp>
#include <tessera/trainer/flags/options.hpp>
#include <tessera/trainer/generate/samples.hpp>

namespace fsdp::train {

/// Returns the size of a rank's step for these options and number of ranks.
StepSize step_size(const TrainOptions& options, int ranks);

/// Calls require_samples, then returns step_size.
StepSize required_step_size(const TrainOptions& options, int ranks, bool writes_text);

/// Returns the dry run's request for these options, for the rank that needs the most memory. `work`: the optimizer's.
plan::Request plan_request(const TrainOptions& options, int ranks, StepWork work);
/// The same; takes the work from the optimizer.
template <class Optimizer>
plan::Request plan_request(const TrainOptions& options, int ranks, const Optimizer& optimizer) {
  return plan_request(options, ranks, optim::step_work(optimizer));
}

}  // namespace fsdp::train
