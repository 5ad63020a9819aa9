// SPDX-License-Identifier: Apache-2.0
/// @file
/// `tessera generate` on one stack.
#pragma once

#include <cstddef>
#include <cstdint>
#include <cstdio>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include <tessera/comm/collectives.hpp>
#include <tessera/comm/launch/print.hpp>
#include <tessera/fsdp/nn/module.hpp>
#include <tessera/fsdp/nn/token_batch.hpp>
#include <tessera/fsdp/training/launch.hpp>
#include <tessera/fsdp/training/training.hpp>
#include <tessera/trainer/flags/model_choice.hpp>
#include <tessera/trainer/flags/options.hpp>
#include <tessera/trainer/generate/generation.hpp>
#include <tessera/trainer/generate/generation_config.hpp>
#include <tessera/trainer/generate/model_tokenizer.hpp>
#include <tessera/trainer/run/commands.hpp>

namespace fsdp::train {

/// Continues every prompt; rank 0 prints prompts and new tokens. All ranks compute the same sequences. Rank 0 samples
/// each token and broadcasts it, since different processors may round logits differently. Sets options by the model's
/// generation_config.json. `flags`: those that are bound to the options. Returns the exit status.
template <class Model>
int generate(GenerateOptions& options, const FlagSet& flags, const ShardingOf<Model>& sharding,
             const TilingOf<Model>& tiling) {
  static_assert(
      nn::GeneratingHead<typename Model::Head, typename Model::Local>,
      "fsdp: this model's head has no logits, so that it cannot generate; give it logits (tessera/fsdp/nn/module.hpp)");
  using Comm = typename Model::Stack::Comm;
  using Compute = typename Model::Stack::Precision::Compute;
  validate(flags, options);
  const std::string set_by_file = apply_generation_config(flags, options);
  std::string unread;
  const std::optional<text::Tokenizer> tokenizer = prompt_tokenizer(options, unread);
  return launch<Comm>(options.launch, [&](Comm& communicator) {
    const Model model = agreed_model<Model>(communicator, options, flags, sharding, tiling);
    const std::int64_t vocabulary = vocabulary_of(model);
    Generation generation(options, vocabulary, tokenizer);
    if (communicator.rank() == 0) {
      if (!set_by_file.empty()) print_sentence("by generation_config.json: " + set_by_file);
      if (tokenizer) warn_of(*tokenizer);
      if (!unread.empty()) print_warning("ids without a token may be drawn: " + unread);
    }
    if constexpr (HasLongestSequence<typename Model::Config>)
      generation.require_positions(model.config().longest_sequence(), options.model);
    const std::int64_t sequences = generation.sequences();
    const bool continued = Executor<Model>::continues && !options.no_cache;
    const std::int64_t length = continued ? generation.longest_prompt() : generation.context();
    Evaluation<Model> evaluation(communicator, model,
                                 {.sequences = sequences,
                                  .sequence_length = length,
                                  .threads = static_cast<int>(options.launch.threads),
                                  .logit_rows = sequences,
                                  .cached_rows = continued ? sequences * generation.context() : 0},
                                 sharding, tiling, Purpose::generate);
    load<Model>(communicator, options.launch, evaluation.module(), options.model, options.adapter);
    const auto print = [&] {
      if (communicator.rank() != 0) return;
      const std::string text = generation.take_output();
      std::fwrite(text.data(), 1, text.size(), stdout);
      std::fflush(stdout);
    };
    std::vector<Compute> memory(static_cast<std::size_t>(sequences * vocabulary));
    const Tensor<Compute> logits(memory.data(), {sequences, vocabulary});
    const auto batch_of = [&](const std::vector<std::int32_t>& tokens) {
      return TokenBatch{.tokens = {tokens.data(), {std::ssize(tokens)}}, .targets = {}, .sequences = sequences};
    };
    bool began = false;
    for (print(); !generation.done(); print()) {
      if constexpr (Executor<Model>::continues)
        if (began) {
          const Generation::Last last = generation.last();
          evaluation.executor().next_logits(batch_of(last.tokens), last.positions, logits);
        }
      if (!began)
        evaluation.executor().logits(batch_of(generation.window(length)), generation.last_rows(length), logits);
      began = continued;
      std::vector<std::int32_t> drawn = generation.draw(std::vector<float>(memory.begin(), memory.end()));
      comm::broadcast(communicator, std::as_writable_bytes(std::span(drawn)), 0, {"drawn tokens"});
      generation.append(drawn);
    }
  });
}

}  // namespace fsdp::train
