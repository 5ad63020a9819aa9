// SPDX-License-Identifier: Apache-2.0
#include "token_tables.hpp"

#include <random>
#include <utility>

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

namespace {

constexpr std::size_t most_slots = 1 << 18;         // 4 MiB
constexpr std::size_t most_word_bytes = 8'000'000;  // total size of the cached words; the cache is cleared beyond it

bool equal(const char* a, const char* b, std::size_t length) {
  if (length < 8) {
    for (std::size_t i = 0; i < length; ++i)
      if (a[i] != b[i]) return false;
    return true;
  }
  for (std::size_t i = 0; i + 8 < length; i += 8)
    if (load8(a + i) != load8(b + i)) return false;
  return load8(a + length - 8) == load8(b + length - 8);
}

}  // namespace

bool WordCache::append(std::string_view word, std::vector<TokenId>& ids) {
  hash_ = hash_of(word);
  const std::size_t mask = slots_.size() - 1;
  for (place_ = hash_ & mask; slots_[place_].length != 0; place_ = (place_ + 1) & mask) {
    const Slot& slot = slots_[place_];
    if (slot.hash != hash_ || slot.length != word.size() || !equal(words_.data() + slot.word, word.data(), word.size()))
      continue;
    if (slot.count == 1)
      ids.push_back(slot.ids);
    else
      ids.insert(ids.end(), ids_.begin() + slot.ids, ids_.begin() + slot.ids + slot.count);
    return true;
  }
  return false;
}

void WordCache::keep(std::string_view word, std::span<const TokenId> ids) {
  Slot& slot = slots_[place_];
  slot = {.hash = hash_,
          .length = static_cast<std::uint16_t>(word.size()),
          .count = static_cast<std::uint16_t>(ids.size()),
          .word = static_cast<std::uint32_t>(words_.size()),
          .ids = ids.size() == 1 ? ids[0] : static_cast<std::uint32_t>(ids_.size())};
  words_ += word;
  if (ids.size() != 1) ids_.insert(ids_.end(), ids.begin(), ids.end());
  if (2 * ++used_ >= slots_.size() || words_.size() > most_word_bytes) grow();
}

void WordCache::grow() {
  if (slots_.size() == most_slots || words_.size() > most_word_bytes) {
    *this = {};
    return;
  }
  const std::vector<Slot> old = std::exchange(slots_, std::vector<Slot>(2 * slots_.size()));
  const std::size_t mask = slots_.size() - 1;
  for (const Slot& slot : old) {
    if (slot.length == 0) continue;
    std::size_t place = slot.hash & mask;
    while (slots_[place].length != 0) place = (place + 1) & mask;
    slots_[place] = slot;
  }
}

}  // namespace fsdp::text
