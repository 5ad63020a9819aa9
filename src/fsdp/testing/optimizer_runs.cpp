// SPDX-License-Identifier: Apache-2.0
#include <tessera/fsdp/testing/optimizer_runs.hpp>

#include <tessera/fsdp/buffer/owned.hpp>
#include <tessera/fsdp/sharding/run_time.hpp>
#include <tessera/fsdp/testing/between_checkpoints.hpp>

namespace fsdp::testing {
namespace {

/// Training between two checkpoints.
struct BetweenCheckpoints : TrainOnly {
  std::filesystem::path save_to, resume;

  template <class Training>
  void begin(Training& training) const {
    if (!resume.empty()) restore_training(training, resume);
  }
  template <class Training>
  void end(Training& training) const {
    if (!save_to.empty()) save_training(training, save_to);
  }
};

}  // namespace

StrategyRun train_with(const AnyOptimizer& optimizer, const OptimizerRun& run) {
  const BetweenCheckpoints around{
      {.steps = run.steps, .lr = run.lr, .as_ranks = run.as_ranks}, run.save_to, run.resume};
  RunTimeAny strategy{.strategy = FullyShard<>{}};
  if (optimizer.grain() == optim::Grain::tensors) strategy.other_layout = buffer::Owned{};
  if (run.place == OptimizerPlace::offloaded)
    return train_with(Offload<RunTimeAny>{strategy}, run.how, optimizer, around);
  if (run.place == OptimizerPlace::replicated) strategy = {.strategy = Replicated{}};
  return train_with(strategy, run.how, optimizer, around);
}

}  // namespace fsdp::testing
