// SPDX-License-Identifier: Apache-2.0
#include <tessera/fsdp/testing/optimizer_runs.hpp>

#include <tessera/fsdp/buffer/layout_policies.hpp>
#include <tessera/fsdp/sharding/run_time.hpp>
#include <tessera/fsdp/testing/strategy_runs.hpp>

namespace fsdp::testing {
namespace {

template <class Strategy>
RunResult train_by(const Strategy& strategy, const AnyOptimizer& optimizer, const OptimizerRun& run) {
  const StrategyTask<Strategy> task{.sharding = strategy, .how = run.how, .as_ranks = run.as_ranks};
  return train_model(run.how.ranks, task,
                     {.steps = run.steps, .lr = run.lr, .save_to = run.save_to, .resume = run.resume}, optimizer);
}

}  // namespace

RunResult train_with(const AnyOptimizer& optimizer, const OptimizerRun& run) {
  RunTimeAny strategy{.strategy = FullyShard<>{}};
  if (optimizer.grain() == optim::Grain::tensors) strategy.other_layout = buffer::Owned{};
  if (run.place == OptimizerPlace::offloaded) return train_by(Offload<RunTimeAny>{strategy}, optimizer, run);
  if (run.place == OptimizerPlace::replicated) strategy = {.strategy = Replicated{}};
  return train_by(strategy, optimizer, run);
}

}  // namespace fsdp::testing
