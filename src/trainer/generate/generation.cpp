// SPDX-License-Identifier: Apache-2.0
#include <tessera/trainer/generate/generation.hpp>

#include <algorithm>
#include <iterator>
#include <utility>

#include <range/v3/view/enumerate.hpp>
#include <range/v3/view/zip.hpp>

#include <tessera/fsdp/core/error.hpp>
#include <tessera/fsdp/core/hash.hpp>
#include <tessera/fsdp/core/terminal_text.hpp>
#include <tessera/trainer/generate/model_folder.hpp>
#include <tessera/trainer/generate/sampling.hpp>

namespace fsdp::train {
namespace {

constexpr std::int64_t byte_values = 256;

void require_known(std::string_view flag, std::span<const std::int32_t> ids, std::int64_t vocabulary) {
  for (const std::int32_t id : ids)
    require<InputError>(id < vocabulary, "--", flag, " holds token ", id,
                        ", which is not below the model's vocabulary of ", vocabulary);
}

}  // namespace

std::vector<std::int32_t> prompt_tokens(std::string_view flag, const std::string& prompt,
                                        const std::optional<text::Tokenizer>& tokenizer, std::int64_t vocabulary,
                                        std::string_view instead) {
  if (!tokenizer) {
    require<InputError>(vocabulary <= byte_values, "--", flag, " is read as bytes, and the model knows ", vocabulary,
                        " tokens, of which nothing says what text they are; ", instead);
    std::vector<std::int32_t> tokens;
    for (const char c : prompt) {
      tokens.push_back(static_cast<unsigned char>(c));
      require<InputError>(tokens.back() < vocabulary, "--", flag, " holds byte ", tokens.back(),
                          ", which is not below the model's vocabulary of ", vocabulary);
    }
    return tokens;
  }
  std::vector<text::TokenId> ids = tokenizer->frame().before;
  tokenizer->append_encoded(prompt, false, ids);
  require<InputError>(!ids.empty(), "--", flag, " becomes no token; give a longer one");
  for (const text::TokenId id : ids)
    require<InputError>(
        id < vocabulary, "--", flag, " holds token ", id, " (", shortened(tokenizer->name_of(id).value_or("")),
        "), which is not below the model's vocabulary of ", vocabulary, "; is the tokenizer the model's?");
  return {ids.begin(), ids.end()};
}

Generation::Generation(const GenerateOptions& options, std::int64_t vocabulary,
                       const std::optional<text::Tokenizer>& tokenizer)
    : ids_given_(!options.prompt_ids.empty()),
      sampling_(options.sampling),
      seed_(options.seed),
      vocabulary_(vocabulary),
      new_tokens_(options.tokens) {
  for (const std::string& text : options.stop_ids) {
    const std::vector<std::int32_t> ids = parse_ids("stop-ids", text);
    require_known("stop-ids", ids, vocabulary);
    stops_.insert(stops_.end(), ids.begin(), ids.end());
  }
  if (!ids_given_)
    sequences_.push_back(
        {.tokens = prompt_tokens("prompt", options.prompt, tokenizer, vocabulary, "give --tokenizer or --prompt-ids")});
  if (!ids_given_ && tokenizer) {
    prompt_ = options.prompt;
    decoder_.emplace(*tokenizer);
    for (const std::int32_t id : sequences_.front().tokens) (void)decoder_->push(static_cast<text::TokenId>(id));
    printed_ = sequences_.front().tokens.size();
  }
  for (const std::string& text : options.prompt_ids) {
    sequences_.push_back({.tokens = parse_ids("prompt-ids", text)});
    require_known("prompt-ids", sequences_.back().tokens, vocabulary);
  }
  if (tokenizer) never_ = unsampled_ids(*tokenizer, vocabulary, stops_);
  for (Sequence& sequence : sequences_) {
    sequence.most = sequence.tokens.size() + static_cast<std::size_t>(new_tokens_);
    const auto fed = static_cast<std::int64_t>(sequence.most) - (new_tokens_ > 0 ? 1 : 0);
    context_ = std::max(context_, fed);
  }
  require<InputError>(context_ <= most_tokens / sequences(), "--tokens ", new_tokens_, ": ", sequences(),
                      " sequences of ", context_, " tokens are more than ", most_tokens,
                      "; take fewer --tokens or prompts");
}

void Generation::require_positions(std::int64_t positions, std::string_view model) const {
  require<InputError>(context_ <= positions, "the longest prompt has ", longest_prompt(), " tokens, and with --tokens ",
                      new_tokens_, " the model would read ", context_, ", more than the ", positions,
                      " positions of --model ", model, "; take fewer --tokens or a shorter prompt");
}

bool Generation::done() const { return std::ranges::all_of(sequences_, &Sequence::done); }

std::vector<std::int32_t> Generation::window(std::int64_t length) const {
  std::vector<std::int32_t> window(static_cast<std::size_t>(sequences() * length), 0);
  auto at = window.begin();
  for (const Sequence& sequence : sequences_) {
    const auto used = std::min<std::ptrdiff_t>(std::ssize(sequence.tokens), length);  // the last token may not fit
    std::copy_n(sequence.tokens.begin(), used, at);
    at += length;
  }
  return window;
}

std::vector<std::int64_t> Generation::last_rows(std::int64_t length) const {
  std::vector<std::int64_t> rows;
  for (const Sequence& sequence : sequences_)
    rows.push_back(std::ssize(rows) * length + std::min<std::int64_t>(std::ssize(sequence.tokens), length) - 1);
  return rows;
}

Generation::Last Generation::last() const {
  Last last;
  for (const Sequence& sequence : sequences_) {
    const auto position = std::min<std::int64_t>(std::ssize(sequence.tokens), context_) - 1;
    last.positions.push_back(static_cast<std::int32_t>(position));
    last.tokens.push_back(sequence.tokens[static_cast<std::size_t>(position)]);
  }
  return last;
}

std::vector<std::int32_t> Generation::draw(std::span<const float> logits) const {
  const auto columns = static_cast<std::size_t>(vocabulary_);
  require(logits.size() == sequences_.size() * columns, "generation: ", logits.size(), " logits were given for ",
          sequences(), " sequences over ", vocabulary_, " tokens");
  std::vector<std::int32_t> drawn(sequences_.size());
  for (const auto& [i, sequence] : ranges::views::enumerate(sequences_)) {
    if (sequence.done()) continue;
    const std::uint64_t step = sequence.tokens.size() + static_cast<std::size_t>(new_tokens_) - sequence.most;
    const std::uint64_t place = static_cast<std::uint64_t>(i) << 32 | step;
    const double uniform = static_cast<double>(mixed(seed_ ^ mixed(place)) >> 11) * 0x1p-53;
    drawn[i] = sample(logits.subspan(i * columns, columns), sequence.tokens, sampling_, uniform, never_);
  }
  return drawn;
}

void Generation::append(std::span<const std::int32_t> drawn) {
  require(drawn.size() == sequences_.size(), "generation: ", drawn.size(), " tokens were given for ", sequences(),
          " sequences");
  for (const auto& [sequence, token] : ranges::views::zip(sequences_, drawn)) {
    if (sequence.done()) continue;
    sequence.tokens.push_back(token);
    sequence.stopped = std::ranges::find(stops_, token) != stops_.end();
  }
}

std::string Generation::take_text() {
  const std::vector<std::int32_t>& tokens = sequences_.front().tokens;
  if (printed_ > tokens.size()) return {};
  std::string text = std::exchange(prompt_, {});
  for (; printed_ < tokens.size(); ++printed_) {
    if (decoder_)
      text += decoder_->push(static_cast<text::TokenId>(tokens[printed_]));
    else
      text.push_back(static_cast<char>(tokens[printed_]));
  }
  if (!done()) return text;
  ++printed_;
  return text + (decoder_ ? decoder_->finish() : "") + '\n';
}

std::string Generation::take_output() {
  if (!ids_given_) return take_text();
  std::string text;
  for (; printed_ < sequences_.size() && sequences_[printed_].done(); ++printed_) {
    for (const std::int32_t token : sequences_[printed_].tokens) text += std::to_string(token) + ',';
    text.back() = '\n';  // replaces the last comma: a sequence contains at least its prompt
  }
  return text;
}

}  // namespace fsdp::train
