// SPDX-License-Identifier: Apache-2.0
/// @file
/// The dry run's request for the step that a run's options describe. It needs no stack.
#pragma once

#include <tessera/fsdp/optim/optimizer.hpp>
#include <tessera/fsdp/plan/plan.hpp>
#include <tessera/fsdp/sharding/strategy.hpp>
#include <tessera/fsdp/training/step_size.hpp>
#include <tessera/trainer/flags/options.hpp>

namespace fsdp::train {

/// Returns the dry run's request for a step of this size, for the rank that needs the most memory.
template <class Optimizer>
plan::Request most_loaded_request(const StepSize& size, int ranks, const Optimizer& optimizer) {
  return plan_request(size, ranks, plan::most_loaded, Purpose::train, optim::step_work(optimizer));
}
/// The same for the step of these options.
template <class Sharding, class Optimizer>
plan::Request plan_request(const TrainOptions& options, int ranks, const Sharding& sharding,
                           const Optimizer& optimizer) {
  return most_loaded_request(step_size(options, ranks, sharding::facts_of(sharding).pieces), ranks, optimizer);
}

}  // namespace fsdp::train
