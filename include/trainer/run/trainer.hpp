// SPDX-License-Identifier: Apache-2.0
/// @file
/// Training of one model on one rank: data, steps, metrics, validation, checkpoints.
#pragma once

#include <optional>
#include <utility>

#include <tessera/trainer/flags/options.hpp>
#include <tessera/trainer/run/checkpoint_dir.hpp>
#include <tessera/trainer/run/engine_of.hpp>
#include <tessera/trainer/run/run_watch.hpp>
#include <tessera/trainer/run/training_run.hpp>

namespace fsdp::train {

/// Trains a model on a source: an engine, and the run that it makes the steps of.
template <fsdp::Model Model, data::Source Source, class Optimizer = optim::RunTimeOptimizer>
class Trainer {
 public:
  using Stack = typename Model::Stack;

  /// Options, source and communicator must outlive it. `dir`: the claim to --checkpoint-dir; made here if left out.
  Trainer(typename Stack::Comm& communicator, const TrainOptions& options, const Model& model, const Source& source,
          const typename Stack::Sharding& sharding, const typename Stack::Tiling& tiling,
          const Optimizer& optimizer = {}, std::optional<CheckpointDir> dir = {})
      : watch_(options, communicator.rank()),
        engine_(communicator, options, model, source, sharding, tiling, optimizer, watch_),
        run_(engine_, options, watch_, dir ? *std::move(dir) : CheckpointDir(communicator, options)) {}

  /// See TrainingRun::run.
  [[nodiscard]] int run() { return run_.run(); }

 private:
  RunWatch watch_;
  EngineOf<Model, Source, Optimizer> engine_;
  TrainingRun run_;
};

}  // namespace fsdp::train
