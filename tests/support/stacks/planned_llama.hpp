// SPDX-License-Identifier: Apache-2.0
/// @file
/// Dry runs of Llamas in mixed precision on a device without storage, and a comparison of what they record with runs.
#pragma once

#include <tessera/fsdp/models/llama_config.hpp>
#include <tessera/fsdp/module/units.hpp>
#include <tessera/fsdp/plan/cluster.hpp>
#include <tessera/fsdp/plan/plan.hpp>
#include <tessera/fsdp/plan/step_estimate.hpp>
#include <tessera/fsdp/sharding/run_time.hpp>
#include <tessera/fsdp/testing/strategy_loop.hpp>
#include <tessera/fsdp/training/run_time_optimizer.hpp>
#include <tessera/tiling/policies.hpp>

namespace fsdp::test {

struct PlannedLlama {
  LlamaConfig config;
  UnitOptions units = {};
  AnyStrategy strategy = {};
  tiling::RunTimeTiling tiling = {};
  optim::RunTimeOptimizer optimizer = {};
};

/// plan::dry_run.
plan::Plan dry_run(const PlannedLlama& llama, const plan::Request& request);
/// plan::estimate. The strategy is a RunTimeAny.
plan::Estimate estimate(const PlannedLlama& llama, const plan::Request& request, const plan::Cluster& cluster);
/// Compares the collectives and the bytes of a run's last step with the record of a dry run of the same step.
void expect_calls_of_a_run(const RunTimeAny& strategy, const testing::StrategyCase& how);

}  // namespace fsdp::test
