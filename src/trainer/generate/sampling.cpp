// SPDX-License-Identifier: Apache-2.0
#include <tessera/trainer/generate/sampling.hpp>

#include <algorithm>
#include <cmath>
#include <cstddef>
#include <functional>
#include <limits>
#include <numeric>

#include <range/v3/view/enumerate.hpp>

#include <tessera/fsdp/core/error.hpp>

namespace fsdp::train {
namespace {

constexpr double removed = -std::numeric_limits<double>::infinity();

/// Source: RepetitionPenaltyLogitsProcessor of transformers. A token that was seen twice is penalised once.
void penalise(std::vector<double>& scores, std::span<const std::int32_t> seen, double penalty) {
  if (penalty == 1) return;
  std::vector<std::int32_t> once(seen.begin(), seen.end());
  std::sort(once.begin(), once.end());
  once.erase(std::unique(once.begin(), once.end()), once.end());
  for (const std::int32_t token : once) {
    double& score = scores.at(static_cast<std::size_t>(token));
    score = score < 0 ? score * penalty : score / penalty;
  }
}

/// Returns exp(score) of each token, divided by their sum. The greatest score must be 0.
std::vector<double> softmax(const std::vector<double>& scores) {
  std::vector<double> result = scores;
  for (double& each : result) each = std::exp(each);
  const double sum = std::accumulate(result.begin(), result.end(), 0.0);
  for (double& each : result) each /= sum;
  return result;
}

void keep_top_k(std::vector<double>& scores, std::int64_t k) {
  if (k == 0 || k >= std::ssize(scores)) return;
  std::vector<double> sorted = scores;
  const auto last = sorted.begin() + static_cast<std::ptrdiff_t>(k - 1);
  std::nth_element(sorted.begin(), last, sorted.end(), std::greater<>());
  const double least = *last;
  for (double& score : scores)
    if (score < least) score = removed;
}

/// Source: TopPLogitsWarper of transformers, which removes the least likely tokens whose sum is at most 1 - p.
void keep_top_p(std::vector<double>& scores, double p) {
  if (p >= 1) return;
  const std::vector<double> all = softmax(scores);
  std::vector<std::size_t> order;
  for (const auto& [i, score] : ranges::views::enumerate(scores))
    if (score != removed) order.push_back(i);
  std::stable_sort(order.begin(), order.end(), [&](std::size_t a, std::size_t b) { return scores[a] < scores[b]; });
  order.pop_back();  // the likeliest always stays
  double sum = 0;
  for (const std::size_t i : order) {
    sum += all[i];
    if (sum > 1 - p) break;
    scores[i] = removed;
  }
}

}  // namespace

std::vector<double> probabilities(std::span<const float> logits, std::span<const std::int32_t> seen,
                                  const Sampling& sampling, std::span<const std::int32_t> never) {
  require<InputError>(
      std::ranges::all_of(logits, [](float logit) { return std::isfinite(logit); }),
      "the model's logits are not all finite, so that no token can be drawn; look at the weights of --model, and of "
      "--adapter where it is given");
  std::vector<double> scores(logits.begin(), logits.end());
  penalise(scores, seen, sampling.repetition_penalty);
  for (const std::int32_t token : never) scores.at(static_cast<std::size_t>(token)) = removed;
  const auto best = std::max_element(scores.begin(), scores.end());
  require<InputError>(best != scores.end() && *best != removed,
                      "the tokenizer has no token of the model's vocabulary, so that none can be drawn");
  if (sampling.temperature <= 0) {
    std::vector<double> likeliest(scores.size());
    likeliest.at(static_cast<std::size_t>(best - scores.begin())) = 1;
    return likeliest;
  }
  const double most = *best;
  for (double& score : scores) score = (score - most) / sampling.temperature;
  keep_top_k(scores, sampling.top_k);
  keep_top_p(scores, sampling.top_p);
  if (sampling.min_p > 0)
    for (double& score : scores)
      if (std::exp(score) < sampling.min_p) score = removed;
  return softmax(scores);
}

std::int32_t sample(std::span<const float> logits, std::span<const std::int32_t> seen, const Sampling& sampling,
                    double uniform, std::span<const std::int32_t> never) {
  const std::vector<double> all = probabilities(logits, seen, sampling, never);
  double left = uniform;
  std::size_t last = 0;
  for (const auto& [i, probability] : ranges::views::enumerate(all)) {
    if (probability <= 0) continue;
    last = i;
    left -= probability;
    if (left < 0) break;
  }
  return static_cast<std::int32_t>(last);
}

}  // namespace fsdp::train
