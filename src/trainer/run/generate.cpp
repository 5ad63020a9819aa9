// SPDX-License-Identifier: Apache-2.0
#include <tessera/trainer/run/generate.hpp>

#include <algorithm>
#include <array>
#include <cstddef>
#include <cstdint>
#include <cstdio>
#include <optional>
#include <span>
#include <vector>

#include <tessera/comm/launch/print.hpp>
#include <tessera/comm/ranks.hpp>
#include <tessera/trainer/flags/disk_deadline.hpp>
#include <tessera/trainer/generate/chat_session.hpp>
#include <tessera/trainer/generate/generation.hpp>
#include <tessera/trainer/generate/model_folder.hpp>

namespace fsdp::train {

PromptInput read_prompt_input(GenerateOptions& options, const FlagSet& flags) {
  validate(flags, options);
  PromptInput input{.set_by_file = apply_generation_config(flags, options)};
  input.tokenizer = prompt_tokenizer(options, input.unread);
  return input;
}

void generate(Inference& inference, const GenerateOptions& options, const PromptInput& input) {
  const bool leads = inference.ranks().rank() == 0;
  Generation generation(options, inference.vocabulary(), input.tokenizer);
  if (leads) {
    if (!input.set_by_file.empty()) print_sentence("by generation_config.json: " + input.set_by_file);
    if (input.tokenizer) warn_of(*input.tokenizer);
    if (!input.unread.empty()) print_warning("ids without a token may be drawn: " + input.unread);
  }
  if (const auto longest = inference.longest_sequence()) generation.require_positions(*longest, options.model);
  const std::int64_t sequences = generation.sequences();
  const bool continued = inference.continues() && !options.no_cache;
  const std::int64_t length = continued ? generation.longest_prompt() : generation.context();
  inference.begin({.sequences = sequences,
                   .sequence_length = length,
                   .threads = static_cast<int>(options.launch.threads),
                   .logit_rows = sequences,
                   .cached_rows = continued ? sequences * generation.context() : 0},
                  Purpose::generate);
  const auto print = [&] {
    if (!leads) return;
    const std::string text = generation.take_output();
    std::fwrite(text.data(), 1, text.size(), stdout);
    std::fflush(stdout);
  };
  const auto logits = [&](bool first) {
    if (first || !continued) return inference.logits(generation.window(length), generation.last_rows(length));
    const Generation::Last last = generation.last();
    return inference.next_logits(last.tokens, last.positions);
  };
  bool first = true;
  for (print(); !generation.done(); print()) {
    std::vector<std::int32_t> drawn = generation.draw(logits(first));
    first = false;
    inference.ranks().broadcast(std::as_writable_bytes(std::span(drawn)), 0, {"drawn tokens"});
    generation.append(drawn);
  }
}

namespace {

/// Returns the logits after the tokens of `work`. `most`: number of tokens in the longest pass.
std::vector<float> logits_after(Inference& inference, ChatWork work, std::int64_t most) {
  if (!work.anew) {
    const std::array position = {static_cast<std::int32_t>(work.position)};
    return inference.next_logits(work.tokens, position);
  }
  const std::array last = {static_cast<std::int64_t>(work.tokens.size()) - 1};
  work.tokens.resize(static_cast<std::size_t>(most));  // padding; a causal model ignores it
  return inference.logits(work.tokens, last);
}

}  // namespace

std::string settle_chat(ChatOptions& options, const FlagSet& flags) {
  validate_sampling(flags, options.generate);
  return apply_generation_config(flags, options.generate);
}

void chat(Inference& inference, ChatOptions options, const std::string& set_by_file) {
  constexpr double thinks_seconds = 1e6;
  const comm::Ranks& ranks = inference.ranks();
  const bool leads = ranks.rank() == 0;
  if (const auto longest = inference.longest_sequence()) options.context = std::min(options.context, *longest);
  const std::int64_t most = std::min<std::int64_t>(options.context, prompt_pass_tokens);
  std::optional<ChatSession> session = comm::together(ranks, "--tokenizer", [&] {
    return leads ? std::optional<ChatSession>(std::in_place, options, inference.vocabulary()) : std::nullopt;
  });
  if (leads && !set_by_file.empty()) print_sentence("by generation_config.json: " + set_by_file);
  inference.begin({.sequences = 1,
                   .sequence_length = most,
                   .threads = static_cast<int>(options.generate.launch.threads),
                   .logit_rows = 1,
                   .cached_rows = options.context},
                  Purpose::generate);
  for (;;) {
    std::vector<std::int32_t> numbers(static_cast<std::size_t>(most) + 4);
    if (leads) numbers = session->next(stdin, most).numbers(static_cast<std::size_t>(most));
    with_disk_deadline(ranks, thinks_seconds, "chat: a line",
                       [&] { ranks.broadcast(std::as_writable_bytes(std::span(numbers)), 0, {"a chat's tokens"}); });
    ChatWork work = ChatWork::of(numbers);
    if (work.ends) return;
    const std::vector<float> logits = logits_after(inference, std::move(work), most);
    if (leads) session->take(logits);
  }
}

}  // namespace fsdp::train
