// SPDX-License-Identifier: Apache-2.0
#include "word_cache.hpp"

#include <utility>

#include "token_map.hpp"

namespace fsdp::text {
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
    if (slot.count == 1) {
      ids.push_back(slot.ids);
    } else {
      ids.insert(ids.end(), ids_.begin() + slot.ids, ids_.begin() + slot.ids + slot.count);
    }
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
