// SPDX-License-Identifier: Apache-2.0
// Jiang et al. 2023: sliding-window attention.
#include "families.hpp"

namespace fsdp {

constexpr Family mistral_family = {
    .name = "mistral",
    .architecture = "Mistral",
    .window = Family::Window::always,
    .positions = 131072,
    .kv_heads = 8,
    .kv_heads_may_be_null = false,
};

}  // namespace fsdp
