// SPDX-License-Identifier: Apache-2.0
#include <tessera/trainer/run/chat.hpp>

#include <algorithm>
#include <array>
#include <cstddef>
#include <cstdint>
#include <cstdio>
#include <optional>
#include <span>
#include <vector>

#include <tessera/comm/agreement.hpp>
#include <tessera/comm/launch/print.hpp>
#include <tessera/trainer/flags/disk_deadline.hpp>
#include <tessera/trainer/generate/chat_session.hpp>
#include <tessera/trainer/generate/generation_config.hpp>

namespace fsdp::train {
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
