// SPDX-License-Identifier: Apache-2.0
// A config.json.
#include <tessera/fsdp/models/llama_config.hpp>

#include "target.hpp"

FUZZ_TARGET(model_config) {
  fsdp::fuzz::refused_or_read([&] { fsdp::LlamaConfig::parse(input, "config.json"); });
}
