// SPDX-License-Identifier: Apache-2.0
#include <fsdp/train/sampling.hpp>

#include <algorithm>
#include <cmath>
#include <iterator>
#include <vector>

#include <fsdp/core/error.hpp>

namespace fsdp::train {
namespace {

template <class T>
std::int32_t sample_from(std::span<const T> logits, double temperature, double uniform) {
  const auto best = std::max_element(logits.begin(), logits.end(),
                                     [](T a, T b) { return static_cast<float>(a) < static_cast<float>(b); });
  const auto finite = [](T logit) { return std::isfinite(static_cast<float>(logit)); };
  require<InputError>(
      std::all_of(logits.begin(), logits.end(), finite),
      "the model's logits are not all finite, so that no token can be drawn; look at the weights of --model");
  if (temperature <= 0) return static_cast<std::int32_t>(std::distance(logits.begin(), best));
  std::vector<double> weights;
  double sum = 0;
  for (const T logit : logits) {
    weights.push_back(std::exp((static_cast<double>(logit) - static_cast<double>(*best)) / temperature));
    sum += weights.back();
  }
  double left = uniform * sum;
  for (std::size_t i = 0; i + 1 < weights.size(); ++i) {
    left -= weights[i];
    if (left < 0) return static_cast<std::int32_t>(i);
  }
  return static_cast<std::int32_t>(weights.size() - 1);
}

}  // namespace

std::int32_t sample(std::span<const float> logits, double temperature, double uniform) {
  return sample_from(logits, temperature, uniform);
}
std::int32_t sample(std::span<const bf16> logits, double temperature, double uniform) {
  return sample_from(logits, temperature, uniform);
}

}  // namespace fsdp::train
