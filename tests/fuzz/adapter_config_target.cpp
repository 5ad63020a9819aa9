// SPDX-License-Identifier: Apache-2.0
// An adapter_config.json.
#include <tessera/fsdp/models/lora_config.hpp>

#include "target.hpp"

FUZZ_TARGET(adapter_config) {
  fsdp::fuzz::refused_or_read([&] { fsdp::LoraConfig::parse(input, "adapter_config.json"); });
}
