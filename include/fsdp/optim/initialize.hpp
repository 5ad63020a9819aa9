// SPDX-License-Identifier: Apache-2.0
/// @file
/// Initial weights: a function of seed, parameter name and global index alone, so that they do not depend on sharding.
#pragma once

#include <cstdint>
#include <string_view>

#include <fsdp/device/on_host.hpp>
#include <fsdp/sharded_module.hpp>
#include <fsdp/units.hpp>

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
double normal_at(std::uint64_t key, std::int64_t index);

/// Elements [begin, begin + weights.numel()) of a parameter: normal with deviation 0.02; norms are 1.
void initialize(Tensor<float> weights, const NamedParameter& parameter, std::int64_t begin, std::uint64_t seed);

/// Every rank makes the elements that it holds.
template <class Model>
void initialize(ShardedModule<Model>& module, std::uint64_t seed) {
  using Space = typename ShardedModule<Model>::Group::MainSpace;
  for (const auto& piece : module.pieces()) {
    device::OnHost<Space, float> host(module.stream(), piece.main);
    initialize(host.values(), *piece.parameter, piece.begin, seed);
    host.write_back();
  }
  module.sync_model_weights();
}

}  // namespace fsdp::optim
