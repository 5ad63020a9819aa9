// SPDX-License-Identifier: Apache-2.0
// A generation_config.json.
#include <tessera/trainer/flags/flags.hpp>
#include <tessera/trainer/generate/model_folder.hpp>

#include "target.hpp"

FUZZ_TARGET(generation_config) {
  const std::filesystem::path path = fsdp::fuzz::written("model/generation_config.json", input);
  fsdp::fuzz::refused_or_read([&] {
    fsdp::train::GenerateOptions options;
    options.model = path.parent_path().string();
    options.prompt = "a";
    fsdp::train::FlagSet flags;
    fsdp::train::bind(flags, options);
    fsdp::train::apply_generation_config(flags, options);
  });
}
