// SPDX-License-Identifier: Apache-2.0
/// @file
/// Choosing the next token from logits.
///
/// Order and meaning are those of transformers' `generate`: the repetition penalty, then temperature, top-k, top-p and
/// min-p. Draws are not: its generator is PyTorch's.
#pragma once

#include <cstdint>
#include <span>
#include <vector>

namespace fsdp::train {

/// How a token is chosen; the steps are applied in the order of the fields below `temperature`, after the penalty.
struct Sampling {
  double temperature = 0.8;       ///< 0: always the likeliest token; top-k, top-p and min-p then change nothing
  std::int64_t top_k = 0;         ///< tokens that stay, and those as likely as the last of them; 0: all
  double top_p = 1;               ///< the fewest likeliest tokens of at least this probability together stay; 1: all
  double min_p = 0;               ///< tokens of at least this part of the likeliest's probability stay; 0: all
  double repetition_penalty = 1;  ///< divides logits above 0 of tokens that were seen, and multiplies others; 1: off

  friend bool operator==(const Sampling&, const Sampling&) = default;
};

/// Probability of every token [V]; the sum is 1. `seen`: prompt and continuation so far, in the vocabulary.
/// Throws InputError where a logit is not finite.
std::vector<double> probabilities(std::span<const float> logits, std::span<const std::int32_t> seen,
                                  const Sampling& sampling);

/// The token at `uniform` in [0, 1) of them. Of tokens that are the likeliest alike, the first. Throws as they do.
std::int32_t sample(std::span<const float> logits, std::span<const std::int32_t> seen, const Sampling& sampling,
                    double uniform);

}  // namespace fsdp::train
