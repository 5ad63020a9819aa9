// SPDX-License-Identifier: Apache-2.0
/// @file
/// Samples the next token from logits.
///
/// Parameters have the order and meaning of transformers' `generate`: the repetition penalty, then temperature, top-k,
/// top-p and min-p. The sampled tokens differ from transformers', which uses PyTorch's random generator.
#pragma once

#include <cstdint>
#include <span>
#include <vector>

#include <tessera/trainer/flags/options.hpp>

namespace fsdp::train {

/// Returns the probability of every token [V]; they sum to 1. `seen`: tokens of the prompt and the continuation so far.
/// `never`: ids of probability 0. Throws InputError if a logit is not finite, or if all ids are excluded.
std::vector<double> probabilities(std::span<const float> logits, std::span<const std::int32_t> seen,
                                  const Sampling& sampling, std::span<const std::int32_t> never = {});

/// Samples a token from `probabilities` by inverting their cumulative sum at `uniform`, a number in [0, 1). With
/// temperature 0, returns the first of the likeliest tokens. Throws as `probabilities` does.
std::int32_t sample(std::span<const float> logits, std::span<const std::int32_t> seen, const Sampling& sampling,
                    double uniform, std::span<const std::int32_t> never = {});

}  // namespace fsdp::train
