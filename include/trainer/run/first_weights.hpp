// SPDX-License-Identifier: Apache-2.0
/// @file
/// The weights that a run begins with: those of --model's folder, or random ones.
#pragma once

#include <tessera/fsdp/model_files/model_files.hpp>
#include <tessera/trainer/flags/model_choice.hpp>
#include <tessera/trainer/flags/options.hpp>

namespace fsdp::train {

/// Returns whether a run that does not resume reads its weights from --model's folder. Else they are random: for a new
/// model, for a folder without any file that can be weights, or with --from-scratch. `names_folder`: whether --model is
/// a folder; `adapters`: whether the model has any. Throws InputError for weights in a form that is not read, and for
/// adapters next to random weights of a folder unless --from-scratch is given.
bool starts_from_folder(const TrainOptions& options, bool names_folder, bool adapters);

/// Returns whether --model's folder has no weights at all, and its adapters are planned without. The first process of a
/// job prints so, once.
bool plans_without_weights(const TrainOptions& options);

/// Makes the model of a run, and checks its source of weights before anything slow: throws as starts_from_folder does.
/// `plans`: nothing is trained, so that adapters need no weights next to them, and prints so where there are none;
/// weights of a folder are opened here, since no run does it later.
template <class Model>
Model begun_model(const TrainOptions& options, bool plans = false) {
  Model model = model_of<Model>(options);
  const bool names_folder = is_folder<typename Model::Config>(options.model);
  bool adapters = false;
  if constexpr (HasAdapters<typename Model::Config>) adapters = model.config().adapters().on();
  if (plans && adapters && names_folder) adapters = !plans_without_weights(options);
  const bool stored = !options.resume && starts_from_folder(options, names_folder, adapters);
  if (plans && stored) (void)checkpoint::open_model<Model>(options.model.name, {}, options.model.adapter);
  return model;
}

}  // namespace fsdp::train
