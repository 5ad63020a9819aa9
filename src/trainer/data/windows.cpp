// SPDX-License-Identifier: Apache-2.0
#include <tessera/trainer/data/windows.hpp>

#include <algorithm>
#include <limits>
#include <map>
#include <optional>

#include <tessera/fsdp/core/checked.hpp>
#include <tessera/fsdp/core/error.hpp>
#include <tessera/fsdp/core/terminal_text.hpp>

#include "../../fsdp/core/strings.hpp"
#include "../../fsdp/core/value_names.hpp"

namespace fsdp::data {

void from_text(std::string_view flag, std::string_view text, DocumentSeparator& value) {
  value = {};
  value.index = text == "index";
  if (value.index) return;
  const std::optional<std::int64_t> token = parsed<std::int64_t>(text);
  require<InputError>(token.has_value(), "--", flag, " '", shortened(text), "' is not a whole number and not index");
  value.token = *token;
  constexpr std::int64_t most = std::numeric_limits<std::int32_t>::max();
  require_in_range(flag, value.token, Range<std::int64_t>{.least = 0, .most = most});
}

std::string to_text(const DocumentSeparator& value) { return value.index ? "index" : std::to_string(value.token); }

std::vector<std::int64_t> evenly_spread(std::int64_t begin, std::int64_t count, std::int64_t limit) {
  const std::int64_t taken = limit > 0 ? std::min(limit, count) : count;
  std::vector<std::int64_t> numbers;
  for (std::int64_t i = 0; i < taken; ++i)
    numbers.push_back(begin + static_cast<std::int64_t>(static_cast<double>(i) * static_cast<double>(count) /
                                                        static_cast<double>(taken)));
  return numbers;
}

void append_documents(std::span<const std::int32_t> tokens, std::int32_t separator,
                      std::vector<std::int64_t>& lengths) {
  const std::int64_t start = lengths.back();
  for (std::int64_t t = 1; t < std::ssize(tokens); ++t)
    if (tokens[static_cast<std::size_t>(t) - 1] == separator) lengths.push_back(start + t);
  lengths.push_back(start + std::ssize(tokens));
}

void append_documents(std::span<const std::int64_t> borders, std::int64_t begin, std::int64_t length,
                      std::vector<std::int64_t>& lengths) {
  const std::int64_t start = lengths.back();
  for (auto at = std::ranges::upper_bound(borders, begin); at != borders.end() && *at < begin + length; ++at)
    lengths.push_back(start + *at - begin);
  lengths.push_back(start + length);
}

std::int64_t held_out_of(std::int64_t count, double fraction, std::string_view what) {
  require<InputError>(fraction >= 0 && fraction < 1, "data: a held-out fraction of ", fraction,
                      "; it must be at least 0 and below 1");
  const auto part = static_cast<std::int64_t>(static_cast<double>(count) * fraction);
  const std::int64_t held_out = fraction > 0 ? std::max<std::int64_t>(part, 1) : 0;
  require<InputError>(held_out < count, "data: ", count, " ", what, " leave none to train on after ", held_out,
                      " held-out ones; give more data or --validation-fraction 0");
  return held_out;
}

Windows::Windows(const Corpus& corpus, std::int64_t seq_len, double validation_fraction, std::int64_t vocab_size)
    : corpus_(&corpus), seq_len_(seq_len), count_(0), validation_(0), vocab_size_(vocab_size) {
  require<InputError>(seq_len >= 1, "data: a sequence length of ", seq_len, "; it must be at least 1");
  count_ = (corpus.size() - 1) / seq_len;
  require<InputError>(count_ >= 1, "data: a sequence of ", seq_len, " tokens and the next one do not fit into the ",
                      corpus.size(), corpus.layout().text ? " bytes" : " tokens",
                      " of the data; shorten --seq-len or give more data");
  validation_ = held_out_of(count_, validation_fraction, message("windows of ", seq_len, " tokens"));
}

void Windows::fill(std::int64_t window, std::int32_t* tokens, std::int32_t* targets) const {
  require(window >= 0 && window < count_, "data: window ", window, " of ", count_);
  std::vector<std::uint32_t> all(static_cast<std::size_t>(seq_len_) + 1);
  corpus_->copy(window * seq_len_, all);
  const auto bad = std::ranges::find_if(all, [&](std::int64_t token) { return token >= vocab_size_; });
  if (bad != all.end()) {
    const CorpusPlace place = corpus_->place_of(window * seq_len_ + (bad - all.begin()));
    throw InputError(message("data: ", place.path.string(), " holds ", corpus_->layout().text ? "byte " : "token ",
                             *bad, ", which is not below the model's vocabulary of ", vocab_size_, ", at byte ",
                             place.byte));
  }
  std::ranges::copy(all.begin(), all.end() - 1, tokens);
  std::ranges::copy(all.begin() + 1, all.end(), targets);
}

constexpr ValueNames<OnLong::cut> on_long_names("error", "drop", "cut");

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
  const bool answers = std::any_of(tokens.begin() + 1, end, [](std::int32_t token) { return token >= 0; });
  return answers ? packing_.sequence_length : 0;
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
