// SPDX-License-Identifier: Apache-2.0
/// @file
/// Output of launchers and programs for a person to read. The library itself prints nothing.
#pragma once

#include <cstdio>
#include <string_view>

namespace fsdp {

/// Makes text printable and prints it with a single call.
void print_text(std::FILE* stream, std::string_view text);

/// Prints "tessera: TEXT" as a line on stderr.
void print_sentence(std::string_view text);

/// Prints "tessera: warning: TEXT" as a line on stderr.
void print_warning(std::string_view text);

}  // namespace fsdp
