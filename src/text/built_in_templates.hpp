// SPDX-License-Identifier: Apache-2.0
/// @file
/// Chat templates for models without one.
#pragma once

#include <optional>
#include <string>
#include <string_view>

namespace fsdp::text {

/// The names of the built-in templates, for messages.
inline constexpr std::string_view built_in_names = "chatml, llama3, qwen3, plain";

/// Returns the template chatml, llama3, qwen3 or plain; nothing for another name. Each template marks its answers by
/// generation blocks, and raises an exception if messages are in a wrong order.
std::optional<std::string> built_in_template(std::string_view name);

}  // namespace fsdp::text
