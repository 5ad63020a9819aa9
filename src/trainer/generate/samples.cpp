// SPDX-License-Identifier: Apache-2.0
#include <tessera/trainer/generate/samples.hpp>

#include <algorithm>
#include <cmath>
#include <span>
#include <utility>

#include <tessera/fsdp/core/error.hpp>
#include <tessera/trainer/flags/disk_deadline.hpp>
#include <tessera/trainer/generate/sampling.hpp>

namespace fsdp::train {

void require_samples(const TrainOptions& options, bool writes_text) {
  require<InputError>(!options.sample_prompt || writes_text,
                      "--sample-prompt asks for text, and this model writes none: it reads no tokens, or its head has ",
                      "no logits; leave it out");
}

Samples::Samples(const comm::Ranks& ranks, const TrainOptions& options, const std::string& folder,
                 std::int64_t sequences, std::int64_t vocabulary, RowLogits logits)
    : ranks_(ranks), options_(options), sequences_(sequences), logits_(std::move(logits)) {
  if (options.sample_prompt) read_prompt(folder, vocabulary);
}

Samples::~Samples() = default;

std::optional<report::SampleRecord> Samples::write(std::int64_t step) {
  if (prompt_.empty()) return std::nullopt;
  if (text_) text_->begin();
  std::vector<std::int32_t> tokens(static_cast<std::size_t>(sequences_ * options_.seq_len), 0);
  std::copy(prompt_.begin(), prompt_.end(), tokens.begin());
  for (auto count = std::ssize(prompt_);; ++count) {
    const std::array next = next_token(tokens, count);
    if (next[1] == 0) break;
    tokens[static_cast<std::size_t>(count)] = next[0];
  }
  if (!text_) return std::nullopt;
  return report::SampleRecord{.step = step,
                              .prompt = *options_.sample_prompt,
                              .text = text_->take(),
                              .is_answer = options_.data_format == data::TokenFormat::chat};
}

void Samples::read_prompt(const std::string& folder, std::int64_t vocabulary) {
  text_ = read_together(ranks_, options_.launch.disk_deadline_seconds, "--sample-prompt", [&] {
    return ranks_.rank() == 0 ? std::optional<SampleText>(std::in_place, options_, folder, vocabulary) : std::nullopt;
  });
  std::vector<std::int32_t> shared(static_cast<std::size_t>(options_.seq_len) + 1);  // count, then tokens
  if (text_) {
    shared.front() = static_cast<std::int32_t>(text_->prompt().size());
    std::copy(text_->prompt().begin(), text_->prompt().end(), shared.begin() + 1);
  }
  ranks_.broadcast(std::as_writable_bytes(std::span(shared)), 0, {"the prompt of samples"});
  prompt_.assign(shared.begin() + 1, shared.begin() + 1 + shared.front());
}

/// Computes the token after the first `count`. Returns it, and whether the text continues (1 or 0).
std::array<std::int32_t, 2> Samples::next_token(const std::vector<std::int32_t>& tokens, std::int64_t count) {
  const std::vector<float> logits = logits_(tokens, count - 1);
  require<DivergedError>(std::all_of(logits.begin(), logits.end(), [](float each) { return std::isfinite(each); }),
                         "--sample-prompt: the model's logits are not all finite. Lower --lr");
  const std::span<const std::int32_t> never = text_ ? text_->never() : std::span<const std::int32_t>();
  std::array<std::int32_t, 2> next = {sample(logits, {}, {.temperature = 0}, 0, never), 0};
  if (text_) next[1] = text_->push(next[0]) ? 1 : 0;
  ranks_.broadcast(std::as_writable_bytes(std::span(next)), 0, {"a sample's token"});
  return next;
}

}  // namespace fsdp::train
