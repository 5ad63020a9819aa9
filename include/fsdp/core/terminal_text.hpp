// SPDX-License-Identifier: Apache-2.0
/// @file
/// Text for people. The content of files and flags is untrusted: it must neither control a terminal nor flood it. All
/// output goes through the functions of tessera/comm/launch/print.hpp. A message quotes untrusted text by `shortened`,
/// and an unknown word with a spelling suggestion. Not here: text for programs (JSON, files), and text that a model
/// generated for its user.
#pragma once

#include <cstddef>
#include <span>
#include <string>
#include <string_view>
#include <type_traits>

namespace fsdp {

/// Escapes all characters that control a terminal or mislead the reader: control characters other than newline and tab
/// (`\x1b`, `\x7f`, `\u0085`), direction and line marks (`\u202e`, `\u2028`), and bytes that are not UTF-8 (`\xff`).
std::string printable(std::string_view text);

/// Returns a text to quote in a message: the first `most` bytes, printable in one line, followed by the length if the
/// text is longer. Cuts only between characters.
std::string shortened(std::string_view text, std::size_t most = 100);

/// For functions that join the parts of a message: shortens a string, which is untrusted; returns any other part,
/// including literals, unchanged.
template <class Part>
auto shortened_part(const Part& part) {
  if constexpr (std::is_same_v<Part, std::string> || std::is_same_v<Part, std::string_view>)
    return shortened(part, 400);
  else
    return std::decay_t<const Part>(part);
}

/// Approximate limit on the length of the result of `sentence`.
inline constexpr std::size_t most_sentence_bytes = 8192;

/// Returns the text of an error or warning as it is printed: printable in one line, and without its middle if it is
/// longer than `most` bytes. Cuts only between characters.
std::string sentence(std::string_view text, std::size_t most = most_sentence_bytes);

/// Returns the number of edits (insert, delete or replace a character, or swap two neighbours) that turn `a` into `b`.
std::size_t edit_distance(std::string_view a, std::string_view b);

/// Returns the first of the words with the fewest edits, if these are at most 2 for every 5 characters (but 1 in any
/// case). Otherwise returns the first word that begins with `word` or that `word` begins with (for a word of several
/// parts, only whole parts count), with at least 3 characters in common; otherwise an empty text. If `word` ends with
/// *, the part before it is compared with the beginnings of the words.
std::string nearest(std::string_view word, std::span<const std::string> words);

/// Returns "did you mean 'tiny'? Known: tiny, small", to end a message about an unknown word; "known: tiny, small" if
/// no word is similar.
std::string suggestion(std::string_view word, std::span<const std::string> words);

/// Returns a text as one word of a shell, quoted if necessary.
std::string shell_word(std::string_view text);

}  // namespace fsdp
