// SPDX-License-Identifier: Apache-2.0
/// @file
/// What a model in training writes by itself (--sample-prompt): the likeliest token after a prompt, and after that, by
/// one forward pass each.
///
/// A pass is an evaluation's, over a micro-batch as it was planned: it gathers and gives up unit by unit, and keeps no
/// keys and values. The text stands in its first sequence, padded behind its end, where a causal model does not look.
#pragma once

#include <array>
#include <concepts>
#include <cstddef>
#include <cstdint>
#include <functional>
#include <optional>
#include <string>
#include <vector>

#include <comm/ranks.hpp>
#include <fsdp/module/executor.hpp>
#include <fsdp/nn/module.hpp>
#include <fsdp/nn/token_batch.hpp>
#include <fsdp/report/metrics.hpp>
#include <fsdp/train/model_choice.hpp>
#include <fsdp/train/options.hpp>
#include <fsdp/train/sample_text.hpp>
#include <fsdp/train/training.hpp>

namespace fsdp::train {

/// Whether a model reads tokens and says what follows them.
template <class Model>
inline constexpr bool writes_text =
    std::same_as<typename Model::Batch, TokenBatch>&& nn::GeneratingHead<typename Model::Head, typename Model::Local>;

/// Throws InputError where samples are asked for, and the model cannot write any.
void require_samples(const TrainOptions& options, bool writes_text);

/// step_size, of a model that can do what the options ask for. Throws as require_samples.
StepSize required_step_size(const TrainOptions& options, int ranks, bool writes_text);

/// Logits [V] of the row `row` of a micro-batch, by a pass of the run's model.
using RowLogits = std::function<std::vector<float>(const TokenBatch& batch, std::int64_t row)>;

/// Collective: each call is made by all ranks. They compute the same, with the tokens that rank 0 chooses: it alone
/// knows the tokenizer.
class Samples {
 public:
  /// Of a model that writes none.
  Samples(const comm::Ranks& ranks, const TrainOptions& options);
  /// Reads the tokenizer, where samples are asked for. `folder`: that of --model, empty where it is none; `sequences`:
  /// of a micro-batch. References must outlive it.
  Samples(const comm::Ranks& ranks, const TrainOptions& options, const std::string& folder, std::int64_t sequences,
          std::int64_t vocabulary, RowLogits logits);
  ~Samples();

  /// What the model writes after a step: on rank 0, where samples are asked for. Throws DivergedError on all ranks.
  std::optional<report::SampleRecord> write(std::int64_t step);

 private:
  void read_prompt(const std::string& folder, std::int64_t vocabulary);
  std::array<std::int32_t, 2> next_token(const std::vector<std::int32_t>& tokens, std::int64_t count);

  comm::Ranks ranks_;
  const TrainOptions& options_;
  std::int64_t sequences_ = 0;
  RowLogits logits_ = {};
  std::optional<SampleText> text_ = {};     ///< on rank 0
  std::vector<std::int32_t> prompt_ = {};   ///< empty: no samples
  std::vector<std::int32_t> targets_ = {};  ///< none counts; there, as they are in the plan [sequences * S]
};

/// Of a run's model. `sequences`: of a micro-batch; `executor` must outlive it.
template <class Model>
Samples samples_of(const comm::Ranks& ranks, const TrainOptions& options, Executor<Model>& executor,
                   std::int64_t sequences, std::int64_t vocabulary) {
  using Compute = typename Model::Stack::Precision::Compute;
  const std::string folder = is_folder<typename Model::Config>(options.model) ? options.model.name : "";
  return Samples(ranks, options, folder, sequences, vocabulary,
                 [&executor, vocabulary](const TokenBatch& batch, std::int64_t row) {
                   std::vector<Compute> logits(static_cast<std::size_t>(vocabulary));
                   executor.evaluate_logits(batch, {&row, 1}, {logits.data(), {1, vocabulary}});
                   return std::vector<float>(logits.begin(), logits.end());
                 });
}

}  // namespace fsdp::train
