// SPDX-License-Identifier: Apache-2.0
#include <fsdp/testing/optimizer_runs.hpp>

#include <fsdp/buffer/owned.hpp>
#include <fsdp/checkpoint/folder.hpp>
#include <fsdp/checkpoint/model_files.hpp>
#include <fsdp/sharding/run_time.hpp>
#include <fsdp/train/peers.hpp>
#include <fsdp/train/shards_io.hpp>

namespace fsdp::testing {
namespace {

/// Training between two checkpoints.
struct BetweenCheckpoints : TrainOnly {
  std::filesystem::path save_to, resume;

  template <class Training>
  void begin(Training& training) const {
    using Model = typename Training::Model;
    if (resume.empty()) return;
    train::restore(training.module(), training.optimizer(),
                   checkpoint::Checkpoint::open(resume, checkpoint::read_listing<Model>));
  }
  template <class Training>
  void end(Training& training) const {
    if (save_to.empty()) return;
    auto& module = training.module();
    const std::int64_t step = training.optimizer().steps();
    checkpoint::Save save(save_to, step, 1, checkpoint::listing_of(module.model()),
                          train::states_of(module, training.optimizer().optimizer()));
    checkpoint::save(save, train::peers_of(module.communicator()),
                     {.step = step, .windows = 1, .seq_len = 1, .schedule_steps = step},
                     [&](checkpoint::Save& file) { train::write_shards(module, training.optimizer(), file); });
  }
};

}  // namespace

StrategyRun train_with(const AnyOptimizer& optimizer, const OptimizerRun& run) {
  BetweenCheckpoints around;
  around.steps = run.steps;
  around.lr = run.lr;
  around.as_ranks = run.as_ranks;
  around.save_to = run.save_to;
  around.resume = run.resume;
  RunTimeSharded sharded{.strategy = FullyShard<>{}};
  if (optimizer.grain() == optim::Grain::tensors) sharded.other_layout = buffer::Owned{};
  switch (run.place) {
    case OptimizerPlace::replicated: return train_with(Replicated{}, run.how, optimizer, around);
    case OptimizerPlace::sharded: return train_with(sharded, run.how, optimizer, around);
    case OptimizerPlace::offloaded: break;
  }
  return train_with(Offload<RunTimeSharded>{sharded}, run.how, optimizer, around);
}

}  // namespace fsdp::testing
