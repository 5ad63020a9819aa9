// SPDX-License-Identifier: Apache-2.0
/// @file
/// What a model in training writes by itself (--sample-prompt): the likeliest token after a prompt, and after that, by
/// one forward pass each.
///
/// A pass is an evaluation's, over a micro-batch as it was planned: it gathers and gives up unit by unit, and keeps no
/// keys and values. The text stands in its first sequence, padded behind its end, where a causal model does not look.
#pragma once

#include <algorithm>
#include <array>
#include <cmath>
#include <concepts>
#include <cstddef>
#include <cstdint>
#include <optional>
#include <span>
#include <string>
#include <utility>
#include <vector>

#include <comm/collectives.hpp>
#include <fsdp/core/error.hpp>
#include <fsdp/core/tensor.hpp>
#include <fsdp/module/executor.hpp>
#include <fsdp/nn/module.hpp>
#include <fsdp/nn/token_batch.hpp>
#include <fsdp/report/metrics.hpp>
#include <fsdp/train/agreement.hpp>
#include <fsdp/train/model_choice.hpp>
#include <fsdp/train/options.hpp>
#include <fsdp/train/peers.hpp>
#include <fsdp/train/sample_text.hpp>
#include <fsdp/train/sampling.hpp>
#include <fsdp/train/training.hpp>

namespace fsdp::train {

/// Whether a model reads tokens and says what follows them.
template <class Model>
inline constexpr bool writes_text =
    std::same_as<typename Model::Batch, TokenBatch>&& nn::GeneratingHead<typename Model::Head, typename Model::Local>;

/// Throws InputError where samples are asked for, and the model cannot write any.
template <class Model>
void require_samples(const TrainOptions& options) {
  require<InputError>(options.sample_prompt.empty() || writes_text<Model>,
                      "--sample-prompt asks for text, and this model writes none: it reads no tokens, or its head has ",
                      "no logits; leave it out");
}

/// step_size, of a model that can do what the options ask for. Throws as require_samples.
template <class Model>
StepSize required_step_size(const TrainOptions& options, int ranks) {
  require_samples<Model>(options);
  return step_size(options, ranks);
}

/// Collective: each call is made by all ranks. They compute the same, with the tokens that rank 0 chooses: it alone
/// knows the tokenizer.
template <class Model>
class Samples {
 public:
  using Comm = typename Model::Stack::Comm;
  using Compute = typename Model::Stack::Precision::Compute;

  /// Reads the tokenizer, where samples are asked for. `sequences`: of a micro-batch. References but the model's must
  /// outlive it.
  Samples(Comm& communicator, const TrainOptions& options, const Model& model, Executor<Model>& executor,
          std::int64_t sequences)
      : communicator_(communicator),
        options_(options),
        executor_(executor),
        length_(options.seq_len),
        sequences_(sequences) {
    if constexpr (writes_text<Model>)
      if (!options.sample_prompt.empty()) read_prompt(model.head().logits_columns());
  }

  /// What the model writes after a step: on rank 0, where samples are asked for. Throws DivergedError on all ranks.
  std::optional<report::SampleRecord> write(std::int64_t step) requires(writes_text<Model>) {
    if (prompt_.empty()) return std::nullopt;
    if (text_) text_->begin();
    std::vector<std::int32_t> tokens(targets_.size(), 0);
    std::copy(prompt_.begin(), prompt_.end(), tokens.begin());
    for (auto count = std::ssize(prompt_);; ++count) {
      const std::array next = next_token(tokens, count);
      if (next[1] == 0) break;
      tokens[static_cast<std::size_t>(count)] = next[0];
    }
    if (!text_) return std::nullopt;
    return report::SampleRecord{.step = step,
                                .prompt = options_.sample_prompt,
                                .text = text_->take(),
                                .is_answer = options_.data_format == data::TokenFormat::chat};
  }

 private:
  void read_prompt(std::int64_t vocabulary) {
    const std::string folder = is_folder<typename Model::Config>(options_.model) ? options_.model.name : "";
    text_ = read_on_all_ranks(communicator_, options_.launch.disk_deadline_seconds, "--sample-prompt", [&] {
      return communicator_.rank() == 0 ? std::optional<SampleText>(std::in_place, options_, folder, vocabulary)
                                       : std::nullopt;
    });
    std::vector<std::int32_t> shared(static_cast<std::size_t>(length_) + 1);  // how many, then them
    if (text_) {
      shared.front() = static_cast<std::int32_t>(text_->prompt().size());
      std::copy(text_->prompt().begin(), text_->prompt().end(), shared.begin() + 1);
    }
    comm::broadcast(communicator_, std::as_writable_bytes(std::span(shared)), 0, {"the prompt of samples"});
    prompt_.assign(shared.begin() + 1, shared.begin() + 1 + shared.front());
    targets_.assign(static_cast<std::size_t>(sequences_ * length_), -1);
    logits_.resize(static_cast<std::size_t>(vocabulary));
  }

  /// The token that follows the first `count`, and whether the text goes on.
  std::array<std::int32_t, 2> next_token(const std::vector<std::int32_t>& tokens, std::int64_t count) {
    const Shape shape{sequences_ * length_};
    const TokenBatch batch{
        .tokens = {tokens.data(), shape}, .targets = {targets_.data(), shape}, .sequences = sequences_};
    const std::int64_t last = count - 1;
    executor_.evaluate_logits(batch, {&last, 1}, {logits_.data(), {1, std::ssize(logits_)}});
    const std::vector<float> logits(logits_.begin(), logits_.end());
    require<DivergedError>(std::all_of(logits.begin(), logits.end(), [](float each) { return std::isfinite(each); }),
                           "--sample-prompt: the model's logits are not all finite. Lower --lr");
    std::array<std::int32_t, 2> next = {sample(logits, {}, {.temperature = 0}, 0), 0};
    if (text_) next[1] = text_->push(next[0]) ? 1 : 0;
    comm::broadcast(communicator_, std::as_writable_bytes(std::span(next)), 0, {"a sample's token"});
    return next;
  }

  Comm& communicator_;
  const TrainOptions& options_;
  Executor<Model>& executor_;
  std::int64_t length_, sequences_;
  std::optional<SampleText> text_;     ///< on rank 0
  std::vector<std::int32_t> prompt_;   ///< empty: no samples
  std::vector<std::int32_t> targets_;  ///< none counts; there, as they are in the plan [sequences * S]
  std::vector<Compute> logits_;        // [V]
};

}  // namespace fsdp::train
