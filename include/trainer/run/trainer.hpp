// SPDX-License-Identifier: Apache-2.0
/// @file
/// Training of one model on one rank: data, steps, metrics, validation, checkpoints.
#pragma once

#include <tessera/fsdp/sharding/schedule_of.hpp>
#include <tessera/trainer/flags/flags.hpp>
#include <tessera/trainer/flags/options.hpp>
#include <tessera/trainer/generate/samples.hpp>
#include <tessera/trainer/run/checkpoint_dir.hpp>
#include <tessera/trainer/run/engine_of.hpp>
#include <tessera/trainer/run/run_checkpoints.hpp>
#include <tessera/trainer/run/run_log.hpp>
#include <tessera/trainer/run/training_run.hpp>

namespace fsdp::train {

/// Trains a model on a source: an engine, and the run whose steps it computes.
template <fsdp::Model Model, data::Source Source, class Optimizer = optim::RunTimeOptimizer>
class Trainer {
 public:
  using Stack = typename Model::Stack;

  /// Source and communicator must outlive this object. Throws InputError on all ranks for inconsistent options.
  Trainer(typename Stack::Comm& communicator, const TrainOptions& options, const Model& model, const Source& source,
          const typename Stack::Sharding& sharding, const typename Stack::Tiling& tiling,
          const Optimizer& optimizer = {})
      : options_(with_resumed_threads<Model>(communicator, checked(options), sharding)),
        watch_(options_, communicator.rank()),
        engine_(communicator, options_, model, source, sharding, tiling, optimizer, watch_,
                step_size(options_, communicator.size(), sharding::facts_of(sharding).pieces)),
        run_(engine_, options_, watch_, CheckpointDir(communicator, options_)) {}

  /// See TrainingRun::run.
  [[nodiscard]] int run() { return run_.run(); }

 private:
  /// Checks options that a program set itself, without a command line that checks them.
  static TrainOptions checked(TrainOptions options) {
    require_samples(options, writes_text<Model>);
    FlagSet flags;
    bind(flags, options);
    flags.require_ranges();
    return options;
  }

  TrainOptions options_;
  RunWatch watch_;
  EngineOf<Model, Source, Optimizer> engine_;
  TrainingRun run_;
};

}  // namespace fsdp::train
