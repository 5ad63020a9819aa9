// SPDX-License-Identifier: Apache-2.0
/// @file
/// What a folder says of how its model is to write: generation_config.json of `transformers`.
#pragma once

#include <string>

#include <fsdp/train/options.hpp>

namespace fsdp::train {

/// Options, and what of them the model's folder said.
struct GenerationChoice {
  GenerateOptions options;
  std::string said;  ///< such as "temperature 0.6, stop-ids 2"; empty: nothing
};

/// The options, where the user gave no other value with those of generation_config.json in the folder of `model`, if
/// there is one: temperature, top_k, top_p, min_p, repetition_penalty, eos_token_id, and temperature 0 where it says
/// "do_sample": false. Other keys say nothing here. Throws InputError, which names the file.
GenerationChoice with_generation_config(const GenerateOptions& options);

}  // namespace fsdp::train
