// SPDX-License-Identifier: Apache-2.0
/// @file
/// Text for people. What files and flags contain is unchecked: it must neither control a terminal nor flood it.
///
/// Whatever is printed goes through the functions of tessera/comm/launch/print.hpp. A message quotes unchecked text
/// by `shortened`. Text for programs (JSON, files) and text that a model wrote for its user goes elsewhere.
#pragma once

#include <cstddef>
#include <string>
#include <string_view>
#include <type_traits>

namespace fsdp {

/// Escapes all that controls a terminal or misleads its reader: control characters other than newline and tab (`\x1b`,
/// `\x7f`, `\u0085`), marks of direction and of lines (`\u202e`, `\u2028`), bytes that are not UTF-8 (`\xff`).
std::string printable(std::string_view text);

/// Returns a text to quote in a message: its first `most` bytes, printable in one line, and its length if it has more.
/// Cuts between characters.
std::string shortened(std::string_view text, std::size_t most = 100);

/// For functions that join the parts of a message: shortens a text, which is unchecked; returns any other part,
/// literals included, as it is.
template <class Part>
auto shortened_part(const Part& part) {
  if constexpr (std::is_same_v<Part, std::string> || std::is_same_v<Part, std::string_view>)
    return shortened(part, 400);
  else
    return std::decay_t<const Part>(part);
}

inline constexpr std::size_t most_sentence_bytes = 8192;  ///< approximate limit of what `sentence` returns

/// Returns an error's or warning's text as it is printed: printable, and without its middle if it is very long.
std::string sentence(std::string_view text);

}  // namespace fsdp
