// SPDX-License-Identifier: Apache-2.0
#include <tessera/trainer/generate/sample_text.hpp>

#include <algorithm>
#include <filesystem>
#include <map>
#include <utility>

#include <tessera/fsdp/core/error.hpp>
#include <tessera/text/chat.hpp>
#include <tessera/text/tokenizer_config.hpp>
#include <tessera/trainer/generate/generation.hpp>
#include <tessera/trainer/generate/model_tokenizer.hpp>

#include "../../text/unicode/code_points.hpp"

namespace fsdp::train {
SampleText::SampleText(const TrainOptions& options, const std::string& model_folder, std::int64_t vocabulary)
    : chat_(options.data_format == data::TokenFormat::chat), most_(options.sample_tokens) {
  chat_ ? read_chat(options, model_folder, vocabulary) : read_text(options, model_folder, vocabulary);
  if (tokenizer_) {
    warn_of(*tokenizer_);
    never_ = never_drawn(*tokenizer_, vocabulary, stops_);
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
  if (!tokenizer_) return;
  decoder_.emplace(*tokenizer_, !chat_);
  if (chat_) return;
  for (const std::int32_t id : prompt_) (void)decoder_->push(static_cast<text::TokenId>(id));
}

bool SampleText::push(std::int32_t token) {
  if (std::find(stops_.begin(), stops_.end(), token) != stops_.end()) return false;
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

}  // namespace fsdp::train
