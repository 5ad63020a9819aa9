// SPDX-License-Identifier: Apache-2.0
#include <tessera/fsdp/optim/initialize.hpp>

#include <algorithm>
#include <cmath>
#include <numbers>

#include <tessera/fsdp/core/hash.hpp>

namespace fsdp::optim {

double normal_at(std::uint64_t key, std::int64_t index) {
  const std::uint64_t word = mixed(key ^ mixed(static_cast<std::uint64_t>(index)));
  const double u = (static_cast<double>(word >> 32) + 0.5) * 0x1p-32;
  const double v = static_cast<double>(word & 0xffffffffu) * 0x1p-32;
  return std::sqrt(-2.0 * std::log(u)) * std::cos(2.0 * std::numbers::pi * v);
}

void initialize(Tensor<float> weights, const Parameter& parameter, std::int64_t begin, std::uint64_t seed) {
  using Kind = Initial::Kind;
  const Initial& initial = parameter.initial;
  if (initial.kind != Kind::normal) {
    std::fill_n(weights.data(), weights.numel(), initial.kind == Kind::ones ? 1.0f : 0.0f);
    return;
  }
  const std::uint64_t key = mixed(seed) ^ hashed(hash_seed, parameter.name);
  for (std::int64_t i = 0; i < weights.numel(); ++i)
    weights[i] = static_cast<float>(initial.deviation * normal_at(key, begin + i));
}

}  // namespace fsdp::optim
