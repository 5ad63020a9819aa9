// SPDX-License-Identifier: Apache-2.0
#include <tessera/trainer/data/windows.hpp>

#include <algorithm>
#include <limits>
#include <optional>

#include <tessera/fsdp/core/error.hpp>
#include <tessera/fsdp/core/range.hpp>
#include <tessera/fsdp/core/terminal_text.hpp>

#include "../../fsdp/core/numbers.hpp"

namespace fsdp::data {

void from_text(std::string_view flag, std::string_view text, DocumentSeparator& value) {
  value = {};
  value.index = text == "index";
  if (value.index) return;
  const std::optional<std::int64_t> token = parsed<std::int64_t>(text);
  require<InputError>(token.has_value(), "--", flag, " '", shortened(text), "' is not a whole number and not index");
  value.token = *token;
  require_in_range(flag, value.token,
                   Range<std::int64_t>{.least = 0, .most = std::numeric_limits<std::int32_t>::max()});
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

}  // namespace fsdp::data
