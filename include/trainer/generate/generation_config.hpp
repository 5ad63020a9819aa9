// SPDX-License-Identifier: Apache-2.0
/// @file
/// Sampling defaults from a model folder's generation_config.json, the file of `transformers`.
#pragma once

#include <string>

#include <tessera/trainer/flags/options.hpp>

namespace fsdp::train {

/// Reads generation_config.json in the folder `options.model`, if the file exists, and sets the options that the user
/// did not give: temperature, top_k, top_p, min_p, repetition_penalty, and the stop ids from eos_token_id. "do_sample":
/// false sets temperature 0. Ignores other keys and null values. Returns the options that it set, such as "temperature
/// 0.6, stop-ids 2"; empty if it set none. `flags`: the flags that are bound to the options; they check the values.
/// Throws an InputError that identifies the file.
std::string apply_generation_config(const FlagSet& flags, GenerateOptions& options);

}  // namespace fsdp::train
