// SPDX-License-Identifier: Apache-2.0
/// @file
/// Sample texts during training (--sample-prompt): greedy decoding from a prompt, one forward pass per token.
///
/// A pass is an evaluation of one micro-batch of the planned size: it gathers and reshards unit by unit, and has no KV
/// cache. The text is in the first sequence of the micro-batch, padded at the end, which a causal model ignores.
#pragma once

#include <concepts>
#include <cstdint>
#include <functional>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include <tessera/comm/ranks.hpp>
#include <tessera/fsdp/nn/module.hpp>
#include <tessera/fsdp/nn/token_batch.hpp>
#include <tessera/text/tokenizer.hpp>
#include <tessera/trainer/flags/options.hpp>
#include <tessera/trainer/report/metrics.hpp>

namespace fsdp::train {

/// Whether a model reads tokens and has logits for the next one.
template <class Model>
inline constexpr bool writes_text =
    std::same_as<typename Model::Batch, TokenBatch>&& nn::GeneratingHead<typename Model::Head, typename Model::Local>;

/// Throws InputError if --sample-prompt is given and the model cannot write text.
void require_samples(const TrainOptions& options, bool writes_text);

/// The text of samples: encodes the prompt, decodes the new tokens, and decides where a sample ends. Independent of
/// model and ranks.
class SampleText {
 public:
  /// `model_folder`: may contain a tokenizer; empty for a new model. Throws InputError if the prompt has tokens outside
  /// the vocabulary, or leaves no room for --sample-tokens in a sequence.
  SampleText(const TrainOptions& options, const std::string& model_folder, std::int64_t vocabulary);

  const std::vector<std::int32_t>& prompt() const { return prompt_; }
  const std::vector<std::int32_t>& never() const { return never_; }  ///< ids that are never sampled

  void begin();  ///< starts a new sample
  /// Appends the next token. Returns false if the sample ends here.
  bool push(std::int32_t token);
  std::string take();  ///< text after the prompt as UTF-8; call it once, at the sample's end

 private:
  void read_chat(const TrainOptions& options, const std::string& model_folder, std::int64_t vocabulary);
  void read_text(const TrainOptions& options, const std::string& model_folder, std::int64_t vocabulary);

  std::optional<text::Tokenizer> tokenizer_;  // empty: tokens are bytes
  bool chat_ = false;
  std::int64_t most_;                // largest number of tokens in a sample
  std::vector<std::int32_t> stops_;  // tokens that end a sample and are not part of it
  std::vector<std::int32_t> never_;
  std::string end_text_;  // text that ends an answer; the template may not have a token for it
  std::vector<std::int32_t> prompt_;
  std::int64_t count_ = 0;  // number of tokens so far
  std::optional<text::StreamDecoder> decoder_;
  std::string text_;
};

/// Runs a forward pass over a micro-batch of tokens and returns the logits [V] of its row `row`.
using RowLogits = std::function<std::vector<float>(std::span<const std::int32_t> tokens, std::int64_t row)>;

/// Writes sample texts. Collective: every rank makes each call and computes the same passes. Only rank 0 has the
/// tokenizer; it samples each token and broadcasts it.
class Samples {
 public:
  /// Reads the tokenizer if --sample-prompt is given. `folder`: the value of --model; empty if that is not a folder.
  /// `sequences`: number of sequences in a micro-batch. References must outlive this object.
  Samples(const comm::Ranks& ranks, const TrainOptions& options, const std::string& folder, std::int64_t sequences,
          std::int64_t vocabulary, RowLogits logits);

  /// Writes a sample after a step. Returns it on rank 0; nothing on other ranks or without --sample-prompt. Throws
  /// DivergedError on all ranks if logits are not finite.
  std::optional<report::SampleRecord> write(std::int64_t step);

 private:
  comm::Ranks ranks_;
  const TrainOptions& options_;
  std::int64_t sequences_;
  RowLogits logits_;
  std::optional<SampleText> text_ = {};    ///< set only on rank 0
  std::vector<std::int32_t> prompt_ = {};  ///< tokens of the prompt; empty without samples
};

}  // namespace fsdp::train
