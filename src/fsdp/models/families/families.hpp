// SPDX-License-Identifier: Apache-2.0
/// @file
/// The families; each one is defined in its own file.
#pragma once

#include <tessera/fsdp/models/family.hpp>

namespace fsdp {

extern const Family llama_family, mistral_family, qwen2_family, qwen3_family;

}  // namespace fsdp
