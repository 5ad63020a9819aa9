// SPDX-License-Identifier: Apache-2.0
/// @file
/// Where a new run's weights come from.
#pragma once

#include <tessera/trainer/flags/options.hpp>

namespace fsdp::train {

/// Returns whether a run that does not resume reads the weights of --model's folder; else they are random: of a new
/// model, of a folder that holds no file which can be weights, or asked for by --from-scratch. `names_folder`: whether
/// --model is a folder; `adapters`: whether the model has any. Throws InputError for weights in a form that is not
/// read, and for adapters beside random weights of a folder unless --from-scratch is given.
bool starts_from_folder(const TrainOptions& options, bool names_folder, bool adapters);

}  // namespace fsdp::train
