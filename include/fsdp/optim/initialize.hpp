// SPDX-License-Identifier: Apache-2.0
/// @file
/// Initial weights: a function of seed, parameter name and global index alone, so that they do not depend on sharding.
#pragma once

#include <cmath>
#include <cstdint>
#include <numbers>
#include <string_view>

#include <fsdp/sharded_module.hpp>

namespace fsdp::optim {

/// A well-mixed 64-bit word of its arguments. Source: the finaliser of SplitMix64 (Steele, Lea, Flood 2014).
constexpr std::uint64_t mixed(std::uint64_t word) {
  word += 0x9e3779b97f4a7c15u;
  word = (word ^ (word >> 30)) * 0xbf58476d1ce4e5b9u;
  word = (word ^ (word >> 27)) * 0x94d049bb133111ebu;
  return word ^ (word >> 31);
}

/// FNV-1a.
constexpr std::uint64_t hash_of(std::string_view text) {
  std::uint64_t hash = 0xcbf29ce484222325u;
  for (const char c : text) hash = (hash ^ static_cast<unsigned char>(c)) * 0x100000001b3u;
  return hash;
}

/// Element `index` of a standard normal sequence named by `key` (Box and Muller 1958).
inline double normal_at(std::uint64_t key, std::int64_t index) {
  const std::uint64_t word = mixed(key ^ mixed(static_cast<std::uint64_t>(index)));
  const double u = (static_cast<double>(word >> 32) + 0.5) * 0x1p-32;
  const double v = static_cast<double>(word & 0xffffffffu) * 0x1p-32;
  return std::sqrt(-2.0 * std::log(u)) * std::cos(2.0 * std::numbers::pi * v);
}

/// Normal with deviation 0.02; norms are 1.
template <class Model>
void initialize(ShardedModule<Model>& module, std::uint64_t seed) {
  constexpr double deviation = 0.02;
  for (const auto& piece : module.pieces()) {
    const std::uint64_t key = mixed(seed) ^ hash_of(piece.parameter->name);
    for (std::int64_t i = 0; i < piece.main.numel(); ++i)
      piece.main[i] = piece.parameter->initial == nn::Initial::ones
                          ? 1.0f
                          : static_cast<float>(deviation * normal_at(key, piece.begin + i));
  }
  module.sync_model_weights();
}

}  // namespace fsdp::optim
