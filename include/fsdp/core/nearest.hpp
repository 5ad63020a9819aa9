// SPDX-License-Identifier: Apache-2.0
/// @file
/// Spelling suggestions for messages about unknown flags, presets and stacks.
#pragma once

#include <cstddef>
#include <span>
#include <string>
#include <string_view>

namespace fsdp {

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

}  // namespace fsdp
