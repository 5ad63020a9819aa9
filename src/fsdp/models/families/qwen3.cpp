// SPDX-License-Identifier: Apache-2.0
// Yang et al. 2025: norms of the heads of q and k, and a head width that is independent of the hidden size.
#include "families.hpp"

namespace fsdp {

constexpr Family qwen3_family = {
    .name = "qwen3",
    .architecture = "Qwen3",
    .head_norms = true,
    .window = Family::Window::by_flag,
    .positions = 32768,
    .kv_heads = 32,
    .head_dim = 128,
    .has_attention_bias = true,
};

}  // namespace fsdp
