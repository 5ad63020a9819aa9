// SPDX-License-Identifier: Apache-2.0
/// @file
/// `tessera chat` on one stack.
#pragma once

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <cstdio>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include <tessera/comm/collectives.hpp>
#include <tessera/comm/launch/print.hpp>
#include <tessera/comm/together.hpp>
#include <tessera/fsdp/nn/module.hpp>
#include <tessera/fsdp/nn/token_batch.hpp>
#include <tessera/fsdp/training/launch.hpp>
#include <tessera/fsdp/training/training.hpp>
#include <tessera/trainer/flags/disk_deadline.hpp>
#include <tessera/trainer/flags/options.hpp>
#include <tessera/trainer/generate/chat_session.hpp>
#include <tessera/trainer/generate/generation_config.hpp>
#include <tessera/trainer/run/commands.hpp>

namespace fsdp::train {

/// Runs a conversation on rank 0's standard input and output until the input ends. Only rank 0 knows the conversation;
/// it broadcasts each ChatWork. The other ranks wait as long as the user takes to type. Sets options by the model's
/// generation_config.json. `flags`: those that are bound to the options. Returns the exit status.
template <class Model>
int chat(ChatOptions& options, const FlagSet& flags, const ShardingOf<Model>& sharding, const TilingOf<Model>& tiling) {
  using Comm = typename Model::Stack::Comm;
  using Compute = typename Model::Stack::Precision::Compute;
  static_assert(Executor<Model>::continues,
                "fsdp: this model's blocks cannot continue a sequence, so that it cannot chat; give them `extend` "
                "(tessera/fsdp/nn/module.hpp), or its head logits");
  constexpr double thinks_seconds = 1e6;
  validate_sampling(flags, options.generate);
  const std::string set_by_file = apply_generation_config(flags, options.generate);
  const LaunchOptions& launched_as = options.generate.launch;
  return launch<Comm>(launched_as, [&](Comm& communicator) {
    const Model model = agreed_model<Model>(communicator, options.generate, flags, sharding, tiling);
    ChatOptions mine = options;
    if constexpr (HasLongestSequence<typename Model::Config>)
      mine.context = std::min(mine.context, model.config().longest_sequence());
    const std::int64_t vocabulary = vocabulary_of(model),
                       most = std::min<std::int64_t>(mine.context, prompt_pass_tokens);
    const bool leads = communicator.rank() == 0;
    std::optional<ChatSession> session = comm::together(communicator, "--tokenizer", [&] {
      return leads ? std::optional<ChatSession>(std::in_place, mine, vocabulary) : std::nullopt;
    });
    if (leads && !set_by_file.empty()) print_sentence("by generation_config.json: " + set_by_file);
    Evaluation<Model> evaluation(communicator, model,
                                 {.sequences = 1,
                                  .sequence_length = most,
                                  .threads = static_cast<int>(launched_as.threads),
                                  .logit_rows = 1,
                                  .cached_rows = mine.context},
                                 sharding, tiling, Purpose::generate);
    load<Model>(communicator, launched_as, evaluation.module(), options.generate.model, options.generate.adapter);
    std::vector<Compute> memory(static_cast<std::size_t>(vocabulary));
    const Tensor<Compute> logits(memory.data(), {1, vocabulary});
    for (;;) {
      std::vector<std::int32_t> numbers(static_cast<std::size_t>(most) + 4);
      if (leads) numbers = session->next(stdin, most).numbers(static_cast<std::size_t>(most));
      with_disk_deadline(communicator, thinks_seconds, "chat: a line", [&] {
        comm::broadcast(communicator, std::as_writable_bytes(std::span(numbers)), 0, {"a chat's tokens"});
      });
      ChatWork work = ChatWork::of(numbers);
      if (work.ends) return;
      const auto count = std::ssize(work.tokens);
      if (work.anew) work.tokens.resize(static_cast<std::size_t>(most));  // padding; a causal model ignores it
      const TokenBatch batch{.tokens = {work.tokens.data(), {std::ssize(work.tokens)}}, .targets = {}, .sequences = 1};
      const std::int64_t last = count - 1;
      const auto position = static_cast<std::int32_t>(work.position);
      if (work.anew)
        evaluation.executor().logits(batch, {&last, 1}, logits);
      else
        evaluation.executor().next_logits(batch, {&position, 1}, logits);
      if (leads) session->take(std::vector<float>(memory.begin(), memory.end()));
    }
  });
}

}  // namespace fsdp::train
