// SPDX-License-Identifier: Apache-2.0
#include <tessera/trainer/data/packed_conversations.hpp>

#include <algorithm>
#include <map>

#include <tessera/fsdp/core/error.hpp>
#include <tessera/trainer/data/windows.hpp>

#include "../../fsdp/core/value_names.hpp"

namespace fsdp::data {

namespace {

constexpr ValueNames<OnLong::cut> on_long_names("error", "drop", "cut");

}  // namespace

void from_text(std::string_view flag, std::string_view text, OnLong& value) { value = on_long_names.value(flag, text); }

std::string to_text(OnLong value) { return on_long_names.name(value); }

PackedConversations::PackedConversations(const std::filesystem::path& path, const Packing& packing)
    : conversations_(path), packing_(packing) {
  require<InputError>(packing.sequence_length >= 1, "data: a sequence length of ", packing.sequence_length,
                      "; it must be at least 1");
  const std::int64_t size = conversations_.size();
  const std::int64_t held_out = held_out_of(size, packing.validation_fraction, "conversations");
  pack(0, size - held_out);
  training_ = static_cast<std::int64_t>(windows_.size());
  if (packing.on_long == OnLong::cut)
    require<InputError>(training_ >= 1, "data: in none of ", size - held_out,
                        " conversations does an answer begin within the first ", packing.sequence_length + 1,
                        " tokens; raise --seq-len");
  require<InputError>(training_ >= 1, "data: none of ", size - held_out, " conversations fits into ",
                      packing.sequence_length, " tokens; raise --seq-len, or say --on-long cut");
  pack(size - held_out, size);
}

std::int64_t PackedConversations::places(std::int64_t conversation) const {
  const std::int64_t needed = conversations_.length(conversation) - 1;
  if (needed <= packing_.sequence_length) return needed;
  require<InputError>(packing_.on_long != OnLong::error, conversations_.place_of(conversation), ": is ", needed + 1,
                      " tokens long, and a sequence holds ", packing_.sequence_length + 1,
                      "; raise --seq-len, or say --on-long drop or cut");
  if (packing_.on_long == OnLong::drop) return 0;
  std::vector<std::int32_t> tokens;
  conversations_.append(conversation, tokens);
  const auto end = tokens.begin() + packing_.sequence_length + 1;
  return std::any_of(tokens.begin() + 1, end, [](std::int32_t token) { return token >= 0; }) ? packing_.sequence_length
                                                                                             : 0;
}

void PackedConversations::pack(std::int64_t begin, std::int64_t end) {
  std::multimap<std::int64_t, std::size_t> open;  // windows that are not full, by their free positions
  for (std::int64_t i = begin; i < end; ++i) {
    const std::int64_t needed = places(i);
    dropped_ += needed == 0;
    cut_ += needed > 0 && needed < conversations_.length(i) - 1;
    if (needed == 0) continue;
    used_places_ += needed;
    auto found = open.lower_bound(needed);
    std::int64_t room = packing_.sequence_length;
    std::size_t window = windows_.size();
    if (found == open.end()) {
      windows_.emplace_back();
    } else {
      room = found->first;
      window = found->second;
      open.erase(found);
    }
    windows_[window].push_back(i);
    if (room > needed) open.emplace(room - needed, window);
  }
}

void PackedConversations::fill(std::int64_t window, std::int32_t* tokens, std::int32_t* targets,
                               std::vector<std::int64_t>& documents) const {
  require(window >= 0 && window < training() + validation(), "data: window ", window, " of ",
          training() + validation());
  const std::int64_t begin = documents.back();
  std::int64_t at = 0;
  std::vector<std::int32_t> all;
  for (const std::int64_t conversation : windows_[static_cast<std::size_t>(window)]) {
    all.clear();
    conversations_.append(conversation, all);
    const std::int64_t count = std::min(std::ssize(all) - 1, packing_.sequence_length - at);
    for (std::int64_t i = 0; i < count; ++i) {
      const std::int32_t token = all[static_cast<std::size_t>(i)], next = all[static_cast<std::size_t>(i) + 1];
      tokens[at + i] = token < 0 ? ~token : token;
      targets[at + i] = next < 0 ? -1 : next;
      const std::int64_t larger = std::max<std::int64_t>(tokens[at + i], next);
      require<InputError>(larger < packing_.vocabulary, "data: ", conversations_.place_of(conversation),
                          ": holds token ", larger, ", which is not below the model's vocabulary of ",
                          packing_.vocabulary);
    }
    at += count;
    documents.push_back(begin + at);
  }
  if (at == packing_.sequence_length) return;
  std::fill(tokens + at, tokens + packing_.sequence_length, 0);
  std::fill(targets + at, targets + packing_.sequence_length, -1);
  documents.push_back(begin + packing_.sequence_length);
}

std::string PackedConversations::text() const {
  const std::int64_t places = std::ssize(windows_) * packing_.sequence_length;
  std::string text = message(conversations_.size(), " conversations");
  if (dropped_ > 0) text += message(" (", dropped_, " of them too long and left out)");
  if (cut_ > 0) text += message(" (", cut_, " of them cut)");
  text += message(" in ", windows_.size(), " windows, ", used_places_ * 100 / places, " % filled");
  const std::int64_t replaced = conversations_.replaced_bytes();
  return replaced > 0 ? text + message(", ", replaced, " bytes that are not Unicode text were read as U+FFFD") : text;
}

std::string PackedConversations::identity() const {
  return message(conversations_.size(), " conversations, digest ", conversations_.digest(),
                 ", longer ones: ", to_text(packing_.on_long));
}

}  // namespace fsdp::data
