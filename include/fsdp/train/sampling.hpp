// SPDX-License-Identifier: Apache-2.0
/// @file
/// Choosing the next token from logits.
#pragma once

#include <cstdint>
#include <span>

#include <fsdp/core/bf16.hpp>

namespace fsdp::train {

/// The token at `uniform` in [0, 1) of softmax(logits / temperature); the likeliest where temperature is 0.
/// Throws Error where a logit is not finite.
std::int32_t sample(std::span<const float> logits, double temperature, double uniform);
std::int32_t sample(std::span<const bf16> logits, double temperature, double uniform);

}  // namespace fsdp::train
