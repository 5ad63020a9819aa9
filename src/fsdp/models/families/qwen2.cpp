// SPDX-License-Identifier: Apache-2.0
// Yang et al. 2024: biases of q, k and v.
#include "families.hpp"

namespace fsdp {

constexpr Family qwen2_family = {
    .name = "qwen2",
    .architecture = "Qwen2",
    .biases = true,
    .window = Family::Window::by_flag,
    .positions = 32768,
    .kv_heads = 32,
};

}  // namespace fsdp
