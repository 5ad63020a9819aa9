// SPDX-License-Identifier: Apache-2.0
/// @file
/// `tessera chat`: a conversation.
#pragma once

#include <string>

#include <tessera/trainer/flags/flag_set.hpp>
#include <tessera/trainer/flags/options.hpp>
#include <tessera/trainer/run/engine.hpp>

namespace fsdp::train {

/// Validates the options and applies the model's generation_config.json to them, before ranks start. `flags`: the flags
/// that are bound to the options. Returns the options that the file set, as text. Throws InputError.
std::string settle_chat(ChatOptions& options, const FlagSet& flags);

/// Runs a conversation on rank 0's standard input and output until the input ends. Only rank 0 knows the conversation;
/// it broadcasts each ChatWork. The other ranks wait while the user types. `set_by_file`: the result of settle_chat.
void chat(Inference& inference, ChatOptions options, const std::string& set_by_file);

}  // namespace fsdp::train
