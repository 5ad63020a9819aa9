// SPDX-License-Identifier: Apache-2.0
/// @file
/// `tessera generate`, which continues prompts, and `tessera chat`, a conversation.
#pragma once

#include <optional>
#include <string>

#include <tessera/text/tokenizer.hpp>
#include <tessera/trainer/flags/flag_set.hpp>
#include <tessera/trainer/flags/options.hpp>
#include <tessera/trainer/run/engine.hpp>

namespace fsdp::train {

/// The input that `generate` reads before its ranks start.
struct PromptInput {
  std::string set_by_file = {};  ///< the options that generation_config.json set; empty if it set none
  std::string unread = {};       ///< reason why the tokenizer of the model's folder is not read
  std::optional<text::Tokenizer> tokenizer = {};
};

/// Validates the options and applies the model's generation_config.json to them. `flags`: the flags that are bound to
/// the options. Throws InputError.
PromptInput read_prompt_input(GenerateOptions& options, const FlagSet& flags);

/// Continues every prompt; rank 0 prints prompts and new tokens. All ranks compute the same sequences. Rank 0 samples
/// each token and broadcasts it, since different processors may round logits differently.
void generate(Inference& inference, const GenerateOptions& options, const PromptInput& input);

/// Validates the options and applies the model's generation_config.json to them, before ranks start. `flags`: the flags
/// that are bound to the options. Returns the options that the file set, as text. Throws InputError.
std::string settle_chat(ChatOptions& options, const FlagSet& flags);

/// Runs a conversation on rank 0's standard input and output until the input ends. Only rank 0 knows the conversation;
/// it broadcasts each ChatWork. The other ranks wait while the user types. `set_by_file`: the result of settle_chat.
void chat(Inference& inference, ChatOptions options, const std::string& set_by_file);

}  // namespace fsdp::train
