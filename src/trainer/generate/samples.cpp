// SPDX-License-Identifier: Apache-2.0
#include <tessera/trainer/generate/samples.hpp>

#include <algorithm>
#include <array>
#include <cmath>
#include <filesystem>
#include <map>
#include <utility>

#include <tessera/fsdp/core/error.hpp>
#include <tessera/text/chat.hpp>
#include <tessera/text/tokenizer_config.hpp>
#include <tessera/trainer/flags/disk_deadline.hpp>
#include <tessera/trainer/generate/generation.hpp>
#include <tessera/trainer/generate/model_folder.hpp>
#include <tessera/trainer/generate/sampling.hpp>

#include "../../text/unicode/code_points.hpp"

namespace fsdp::train {

void require_samples(const TrainOptions& options, bool writes_text) {
  require<InputError>(!options.sample_prompt || writes_text,
                      "--sample-prompt asks for text, and this model writes none: it reads no tokens, or its head has ",
                      "no logits; leave it out");
}

SampleText::SampleText(const TrainOptions& options, const std::string& model_folder, std::int64_t vocabulary)
    : chat_(options.data_format == data::TokenFormat::chat), most_(options.sample_tokens) {
  chat_ ? read_chat(options, model_folder, vocabulary) : read_text(options, model_folder, vocabulary);
  if (tokenizer_) {
    warn_of(*tokenizer_);
    never_ = unsampled_ids(*tokenizer_, vocabulary, stops_);
  }
  const std::int64_t tokens = std::ssize(prompt_);
  require<InputError>(tokens <= options.seq_len - most_, "--sample-prompt has ", tokens, " tokens, and --seq-len ",
                      options.seq_len, " leaves ", options.seq_len - most_, " beside --sample-tokens ", most_,
                      "; take a shorter prompt or fewer tokens");
}

void SampleText::read_chat(const TrainOptions& options, const std::string& model_folder, std::int64_t vocabulary) {
  const std::optional<std::filesystem::path> file = tokenizer_of(options.text.tokenizer, model_folder);
  require<InputError>(file.has_value(), "--sample-prompt is a message of a conversation, and there is no ",
                      "tokenizer.json in --model's folder; name one by --tokenizer");
  const text::ChatFormat format(*file, options.text.chat_template, text::training_clock(), options.text.end_token);
  require_vocabulary(format.tokenizer(), *file, vocabulary);
  tokenizer_ = format.tokenizer();
  const std::string rendered = format.prompt("[" + text::chat_message("user", *options.sample_prompt) + "]");
  const std::vector<text::TokenId> ids = tokenizer_->encode(rendered, false);
  require<InputError>(!ids.empty(), "--sample-prompt: ", format.name(), " makes no text of it");
  prompt_.assign(ids.begin(), ids.end());
  const text::AnswerEnd end = text::answer_end(format);
  end_text_ = end.text;
  stops_.assign(end.tokens.begin(), end.tokens.end());
}

void SampleText::read_text(const TrainOptions& options, const std::string& model_folder, std::int64_t vocabulary) {
  std::optional<std::filesystem::path> file;
  if (options.data_format != data::TokenFormat::bytes) file = tokenizer_of(options.text.tokenizer, model_folder);
  if (file) {
    tokenizer_ = text::Tokenizer::read(*file);
    const std::map<std::string, std::string> special = text::special_tokens_beside(*file);
    const auto eos = special.find("eos_token");
    std::string end = options.text.end_token;
    if (end.empty() && eos != special.end()) end = eos->second;
    if (end != "none")
      if (const std::optional<text::TokenId> id = tokenizer_->id_of(end))
        stops_.push_back(static_cast<std::int32_t>(*id));
  }
  prompt_ = prompt_tokens("sample-prompt", *options.sample_prompt, tokenizer_, vocabulary,
                          options.data_format == data::TokenFormat::bytes
                              ? "leave it out, or make a new model with --vocab 256"
                              : "name a tokenizer by --tokenizer");
}

void SampleText::begin() {
  count_ = 0;
  text_.clear();
  if (tokenizer_) decoder_.emplace(*tokenizer_, !chat_);
  if (!tokenizer_ || chat_) return;
  for (const std::int32_t id : prompt_) (void)decoder_->push(static_cast<text::TokenId>(id));
}

bool SampleText::push(std::int32_t token) {
  if (std::ranges::find(stops_, token) != stops_.end()) return false;
  if (decoder_)
    text_ += decoder_->push(static_cast<text::TokenId>(token));
  else
    text_.push_back(static_cast<char>(token));
  if (!end_text_.empty() && text_.ends_with(end_text_)) {
    text_.resize(text_.size() - end_text_.size());
    return false;
  }
  return ++count_ < most_;
}

std::string SampleText::take() {
  if (decoder_) text_ += decoder_->finish();
  std::string sound;
  text::append_replacing(sound, std::exchange(text_, {}));
  return sound;
}

Samples::Samples(const comm::Ranks& ranks, const TrainOptions& options, const std::string& folder,
                 std::int64_t sequences, std::int64_t vocabulary, RowLogits logits)
    : ranks_(ranks), options_(options), sequences_(sequences), logits_(std::move(logits)) {
  if (!options.sample_prompt) return;
  text_ = read_together(ranks, options.launch.disk_deadline_seconds, "--sample-prompt", [&] {
    return ranks.rank() == 0 ? std::optional<SampleText>(std::in_place, options, folder, vocabulary) : std::nullopt;
  });
  std::vector<std::int32_t> shared(static_cast<std::size_t>(options.seq_len) + 1);  // count, then tokens
  if (text_) {
    shared.front() = static_cast<std::int32_t>(text_->prompt().size());
    std::ranges::copy(text_->prompt(), shared.begin() + 1);
  }
  ranks.broadcast(std::as_writable_bytes(std::span(shared)), 0, {"the prompt of samples"});
  prompt_.assign(shared.begin() + 1, shared.begin() + 1 + shared.front());
}

std::optional<report::SampleRecord> Samples::write(std::int64_t step) {
  if (prompt_.empty()) return std::nullopt;
  if (text_) text_->begin();
  std::vector<std::int32_t> tokens(static_cast<std::size_t>(sequences_ * options_.seq_len), 0);
  std::ranges::copy(prompt_, tokens.begin());
  for (auto count = std::ssize(prompt_);; ++count) {
    const std::vector<float> logits = logits_(tokens, count - 1);
    require<DivergedError>(std::ranges::all_of(logits, [](float each) { return std::isfinite(each); }),
                           "--sample-prompt: the model's logits are not all finite. Lower --lr");
    const std::span<const std::int32_t> never = text_ ? text_->never() : std::span<const std::int32_t>();
    std::array<std::int32_t, 2> next = {sample(logits, {}, {.temperature = 0}, 0, never), 0};
    if (text_) next[1] = text_->push(next[0]) ? 1 : 0;  // whether the text continues
    ranks_.broadcast(std::as_writable_bytes(std::span(next)), 0, {"a sample's token"});
    if (next[1] == 0) break;
    tokens[static_cast<std::size_t>(count)] = next[0];
  }
  if (!text_) return std::nullopt;
  return report::SampleRecord{.step = step,
                              .prompt = *options_.sample_prompt,
                              .text = text_->take(),
                              .is_answer = options_.data_format == data::TokenFormat::chat};
}

}  // namespace fsdp::train
