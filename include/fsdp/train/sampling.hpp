// SPDX-License-Identifier: Apache-2.0
/// @file
/// Samples the next token from logits.
///
/// Parameters have the order and meaning of transformers' `generate`: the repetition penalty, then temperature, top-k,
/// top-p and min-p. The tokens drawn differ from it, since it uses PyTorch's random generator.
#pragma once

#include <cstdint>
#include <span>
#include <vector>

namespace fsdp::train {

/// Sampling parameters. Applied in this order: repetition_penalty, temperature, top_k, top_p, min_p.
struct Sampling {
  double temperature = 0.8;  ///< 0: always the likeliest token; top-k, top-p and min-p then change nothing
  std::int64_t top_k = 0;    ///< keeps the k likeliest tokens, and ties with the last of them; 0: all
  double top_p = 1;          ///< keeps the fewest likeliest tokens whose probabilities sum to at least this; 1: all
  double min_p = 0;          ///< keeps tokens with at least this fraction of the top probability; 0: all
  double repetition_penalty = 1;  ///< of seen tokens, divides positive logits and multiplies negative ones; 1: off

  friend bool operator==(const Sampling&, const Sampling&) = default;
};

/// Returns the probability of every token [V]; they sum to 1. `seen`: tokens of the prompt and the continuation so far.
/// Throws InputError if a logit is not finite.
std::vector<double> probabilities(std::span<const float> logits, std::span<const std::int32_t> seen,
                                  const Sampling& sampling);

/// Samples a token from `probabilities` by inverting their cumulative sum at `uniform`, a number in [0, 1). With
/// temperature 0, returns the first of the likeliest tokens. Throws as `probabilities` does.
std::int32_t sample(std::span<const float> logits, std::span<const std::int32_t> seen, const Sampling& sampling,
                    double uniform);

}  // namespace fsdp::train
