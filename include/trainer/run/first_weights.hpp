// SPDX-License-Identifier: Apache-2.0
/// @file
/// The initial weights of a run: loaded from --model's folder, or random.
#pragma once

#include <string>

#include <tessera/comm/ranks.hpp>
#include <tessera/fsdp/core/function_ref.hpp>
#include <tessera/fsdp/model_files/model_files.hpp>
#include <tessera/fsdp/training/launch_options.hpp>
#include <tessera/trainer/flags/model_choice.hpp>
#include <tessera/trainer/flags/options.hpp>

namespace fsdp::train {

/// Returns whether a run that does not resume loads its weights from --model's folder. Otherwise they are random: for a
/// new model, for a folder without any possible weight file, or with --from-scratch. `names_folder`: whether --model is
/// a folder; `adapters`: whether the model has adapters. Throws InputError for weights in an unsupported format, and
/// for adapters on random weights of a folder unless --from-scratch is given.
bool starts_from_folder(const TrainOptions& options, bool names_folder, bool adapters);

/// Returns whether --model's folder has no weights, so that adapters are planned without them; reports it once a job.
bool plans_without_weights(const TrainOptions& options);

/// Creates the model of a run, and checks its source of weights before any slow operation; throws like
/// starts_from_folder. `plans`: nothing is trained, so that adapters do not need the model's weights; if there are
/// none, prints so. The weights of a folder are then opened here, since no run opens them later.
template <class Model>
Model initial_model(const TrainOptions& options, bool plans = false) {
  Model model = model_of<Model>(options);
  const bool names_folder = is_folder<typename Model::Config>(options.model);
  bool adapters = false;
  if constexpr (HasAdapters<typename Model::Config>) adapters = model.config().adapters().on();
  if (plans && adapters && names_folder) adapters = !plans_without_weights(options);
  const bool stored = !options.resume && starts_from_folder(options, names_folder, adapters);
  if (plans && stored) (void)checkpoint::open_model<Model>(options.model.name, {}, options.model.adapter);
  return model;
}

/// Calls load(warn) under the deadline of --disk-deadline, to load weights from a folder; on rank 0, `warn` prints.
/// Collective.
void load_with_disk_deadline(const comm::Ranks& ranks, const LaunchOptions& launch, const std::string& folder,
                             FunctionRef<void(const checkpoint::Warn& warn)> load);

}  // namespace fsdp::train
