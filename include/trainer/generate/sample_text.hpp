// SPDX-License-Identifier: Apache-2.0
/// @file
/// The text of a run's samples (--sample-prompt): encodes the prompt, decodes the new tokens, and decides where a
/// sample ends. Independent of model and ranks; tessera/trainer/generate/samples.hpp runs it.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include <tessera/text/tokenizer.hpp>
#include <tessera/trainer/flags/options.hpp>

namespace fsdp::train {

/// The prompt, and the sample that is being written.
class SampleText {
 public:
  /// `model_folder`: may contain a tokenizer; empty for a new model. Throws InputError if the prompt has tokens outside
  /// the vocabulary, or leaves no room for --sample-tokens in a sequence.
  SampleText(const TrainOptions& options, const std::string& model_folder, std::int64_t vocabulary);

  /// Tokens of the prompt.
  const std::vector<std::int32_t>& prompt() const { return prompt_; }
  /// Ids that are never drawn.
  const std::vector<std::int32_t>& never() const { return never_; }

  /// Starts a new sample.
  void begin();
  /// Appends the next token. Returns false if the sample ends here.
  bool push(std::int32_t token);
  /// Returns the text after the prompt as UTF-8; call it once, at the sample's end.
  std::string take();

 private:
  void read_chat(const TrainOptions& options, const std::string& model_folder, std::int64_t vocabulary);
  void read_text(const TrainOptions& options, const std::string& model_folder, std::int64_t vocabulary);

  std::optional<text::Tokenizer> tokenizer_;  // none: bytes
  bool chat_ = false;
  std::int64_t most_;                // tokens of a sample
  std::vector<std::int32_t> stops_;  // tokens that end a sample and are not part of it
  std::vector<std::int32_t> never_;
  std::string end_text_;  // text that ends an answer; the template may not have a token for it
  std::vector<std::int32_t> prompt_;
  std::int64_t count_ = 0;  // tokens so far
  std::optional<text::StreamDecoder> decoder_;
  std::string text_;
};

}  // namespace fsdp::train
