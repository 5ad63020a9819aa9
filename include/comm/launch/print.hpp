// SPDX-License-Identifier: Apache-2.0
/// @file
/// What launchers and programs print for a person. The library itself prints nothing.
#pragma once

#include <cstdio>
#include <string_view>

namespace fsdp {

/// Prints text that is made printable, with one call.
void print_text(std::FILE* stream, std::string_view text);

/// Prints "tessera: TEXT" as a line on stderr.
void print_sentence(std::string_view text);

/// Prints "tessera: warning: TEXT" as a line on stderr.
void print_warning(std::string_view text);

}  // namespace fsdp
