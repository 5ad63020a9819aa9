// SPDX-License-Identifier: Apache-2.0
/// @file
/// The text of a run's samples (--sample-prompt): the tokens that it begins with, and what those behind them say. Knows
/// no model and no rank; what runs one is train/samples.hpp.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include <fsdp/report/metrics.hpp>
#include <fsdp/text/tokenizer.hpp>
#include <fsdp/train/options.hpp>

namespace fsdp::train {

class SampleText {
 public:
  /// `model_folder`: where a tokenizer may be; empty: the model is new. Throws InputError for a prompt that the
  /// vocabulary does not have, or that leaves no room for --sample-tokens in a sequence.
  SampleText(const TrainOptions& options, const std::string& model_folder, std::int64_t vocabulary);

  const std::vector<std::int32_t>& prompt() const { return prompt_; }

  /// Begins a text.
  void begin();
  /// Takes its next token. Returns whether it goes on.
  bool push(std::int32_t token);
  /// What was written behind the prompt, as UTF-8.
  std::string take();

 private:
  void read_chat(const TrainOptions& options, const std::string& model_folder, std::int64_t vocabulary);
  void read_text(const TrainOptions& options, const std::string& model_folder, std::int64_t vocabulary);

  std::optional<text::Tokenizer> tokenizer_;  // none: bytes
  bool chat_ = false;
  std::int64_t most_;                // tokens of a text
  std::vector<std::int32_t> stops_;  // which are no part of it
  std::string end_text_;             // what ends an answer, where it is no token
  std::vector<std::int32_t> prompt_;
  std::int64_t count_ = 0;  // tokens so far
  std::optional<text::StreamDecoder> decoder_;
  std::string text_;
};

/// The lines of a sample on a terminal. What controls one, but for line ends and tabs, becomes U+FFFD.
std::string console_text(const report::SampleRecord& record);

}  // namespace fsdp::train
