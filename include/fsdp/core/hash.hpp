// SPDX-License-Identifier: Apache-2.0
/// @file
/// Hashes that are the same on every machine: FNV-1a for texts and numbers, and a mixer for words. They detect
/// accidents, not attacks.
#pragma once

#include <cstdint>
#include <string_view>

namespace fsdp {

inline constexpr std::uint64_t hash_seed = 0xcbf29ce484222325u;

constexpr std::uint64_t hashed(std::uint64_t hash, unsigned char byte) { return (hash ^ byte) * 0x100000001b3u; }

constexpr std::uint64_t hashed(std::uint64_t hash, std::string_view text) {
  for (const char c : text) hash = hashed(hash, static_cast<unsigned char>(c));
  return hash;
}

/// Returns `hash` extended by a number's eight bytes.
constexpr std::uint64_t hashed(std::uint64_t hash, std::int64_t number) {
  for (int shift = 0; shift < 64; shift += 8)
    hash = hashed(hash, static_cast<unsigned char>(static_cast<std::uint64_t>(number) >> shift));
  return hash;
}

/// Returns a well-mixed hash of a word. Source: the output function of SplitMix64 (Steele, Lea, Flood 2014).
constexpr std::uint64_t mixed(std::uint64_t word) {
  word += 0x9e3779b97f4a7c15u;
  word = (word ^ (word >> 30)) * 0xbf58476d1ce4e5b9u;
  word = (word ^ (word >> 27)) * 0x94d049bb133111ebu;
  return word ^ (word >> 31);
}

}  // namespace fsdp
