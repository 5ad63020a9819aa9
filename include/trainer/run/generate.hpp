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

/// Validates the options, to which `flags` are bound, and applies the model's generation_config.json to them. Prompts
/// of ids do not need the tokenizer in the model's folder: if it cannot be read, `unread` is set. Throws InputError.
PromptInput read_prompt_input(GenerateOptions& options, const FlagSet& flags);

/// Continues every prompt; rank 0 prints prompts and new tokens. All ranks compute the same sequences. Rank 0 samples
/// each token and broadcasts it, since different processors may round logits differently.
void generate(Inference& inference, const GenerateOptions& options, const PromptInput& input);

/// Runs a conversation on rank 0's standard input and output until the input ends. Only rank 0 knows the conversation;
/// it broadcasts each ChatWork. The other ranks wait while the user types. `set_by_file`: as in PromptInput.
void chat(Inference& inference, ChatOptions options, const std::string& set_by_file);

}  // namespace fsdp::train
