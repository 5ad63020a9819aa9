// SPDX-License-Identifier: Apache-2.0
/// @file
/// The alphabet of byte-level files, introduced by GPT-2: it writes each byte as a visible character.
#pragma once

#include <optional>
#include <string>
#include <string_view>

namespace fsdp::text {

/// Returns the character for a byte, as UTF-8.
const std::string& character_of_byte(unsigned char byte);

/// Appends the bytes of a token that is written in the alphabet. Appends nothing and returns false if it has other
/// characters.
bool append_bytes(std::string& out, std::string_view token);

/// Returns the byte of a token "<0x..>"; nothing for another token.
std::optional<unsigned char> byte_of_fallback(std::string_view token);

/// Returns the token "<0x..>" for a byte.
std::string fallback_of_byte(unsigned char byte);

}  // namespace fsdp::text
