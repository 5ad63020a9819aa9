// SPDX-License-Identifier: Apache-2.0
#include <tessera/trainer/run/generate.hpp>

#include <cstdint>
#include <cstdio>
#include <span>
#include <vector>

#include <tessera/comm/launch/print.hpp>
#include <tessera/trainer/generate/generation.hpp>
#include <tessera/trainer/generate/generation_config.hpp>
#include <tessera/trainer/generate/model_tokenizer.hpp>

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

}  // namespace fsdp::train
