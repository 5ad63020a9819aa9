// SPDX-License-Identifier: Apache-2.0
#include "token_map.hpp"

#include <bit>
#include <random>

namespace fsdp::text {

const std::uint64_t hash_secret = [] {
  std::random_device random;
  return std::uint64_t{random()} << 32 | random();
}();

std::uint32_t hash_of(std::string_view bytes) {
  constexpr std::uint64_t factor = 0x9E3779B97F4A7C15U;
  std::uint64_t last = 0;
  if (bytes.size() >= 8)
    last = load8(bytes.data() + bytes.size() - 8);
  else if (!bytes.empty())
    std::memcpy(&last, bytes.data(), bytes.size());
  std::uint64_t hash = bytes.size();
  for (std::size_t at = 0; at + 8 < bytes.size(); at += 8) hash = hash_of(hash ^ load8(bytes.data() + at), factor);
  return static_cast<std::uint32_t>(hash_of(hash ^ last, factor) >> 32);
}

TokenMap::TokenMap(std::size_t count, std::size_t bytes) : slots_(std::bit_ceil(2 * count + 2)) {
  names_.reserve(count);
  text_.reserve(bytes);
}

std::string_view TokenMap::name(std::size_t place) const {
  return std::string_view(text_).substr(names_[place].begin, names_[place].length);
}

void TokenMap::add(std::string_view name, TokenId id) {
  const std::size_t mask = slots_.size() - 1;
  const std::uint32_t hash = hash_of(name);
  std::size_t at = hash & mask;
  while (slots_[at].place != 0) at = (at + 1) & mask;
  names_.push_back({static_cast<std::uint32_t>(text_.size()), static_cast<std::uint32_t>(name.size()), id});
  slots_[at] = {hash, static_cast<std::uint32_t>(names_.size())};
  text_ += name;
}

std::optional<TokenId> TokenMap::find(std::string_view name) const {
  const std::size_t mask = slots_.size() - 1;
  const std::uint32_t hash = hash_of(name);
  for (std::size_t at = hash & mask; slots_[at].place != 0; at = (at + 1) & mask) {
    const std::size_t place = slots_[at].place - 1;
    if (slots_[at].hash == hash && this->name(place) == name) return names_[place].id;
  }
  return std::nullopt;
}

}  // namespace fsdp::text
