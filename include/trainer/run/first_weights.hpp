// SPDX-License-Identifier: Apache-2.0
/// @file
/// Where a new run's weights come from.
#pragma once

#include <tessera/trainer/flags/options.hpp>

namespace fsdp::train {

/// Returns whether a run that does not resume reads its weights from --model's folder. Else they are random: for a new
/// model, for a folder without any file that can be weights, or with --from-scratch. `names_folder`: whether --model is
/// a folder; `adapters`: whether the model has any. Throws InputError for weights in a form that is not read, and for
/// adapters beside random weights of a folder unless --from-scratch is given.
bool starts_from_folder(const TrainOptions& options, bool names_folder, bool adapters);

}  // namespace fsdp::train
