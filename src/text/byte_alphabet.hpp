// SPDX-License-Identifier: Apache-2.0
/// @file
/// The alphabet of byte-level files, in which GPT-2 first wrote bytes as visible characters.
#pragma once

#include <optional>
#include <string>
#include <string_view>

namespace fsdp::text {

/// The UTF-8 of the character that stands for a byte.
const std::string& character_of_byte(unsigned char byte);

/// Appends the bytes of a token that is written in the alphabet; false, and nothing, where a character of it is not.
bool append_bytes(std::string& out, std::string_view token);

/// The byte of a token "<0x..>".
std::optional<unsigned char> byte_of_fallback(std::string_view token);

/// The token "<0x..>" of a byte.
std::string fallback_of_byte(unsigned char byte);

}  // namespace fsdp::text
