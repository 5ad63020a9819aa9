// SPDX-License-Identifier: Apache-2.0
// Touvron et al. 2023; Llama 2 and 3. The other families are defined by their differences from this one.
#include "families.hpp"

namespace fsdp {

constexpr Family llama_family = {
    .name = "llama",
    .architecture = "Llama",
    .positions = 2048,
    .has_attention_bias = true,
    .has_mlp_bias = true,
};

}  // namespace fsdp
