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

/// Returns the first of the words with the fewest edits if they are at most 2 of 5 characters (but 1 in any case); or
/// else the first that begins with `word`, or begins `word` (of several parts, with whole parts), by at least 3
/// characters; or else an empty text. Of a `word` that ends with *, the part in front is compared with how words begin.
std::string nearest(std::string_view word, std::span<const std::string> words);

/// Returns "did you mean 'tiny'? Known: tiny, small", to end a sentence about an unknown word; "known: tiny, small" if
/// none is near.
std::string suggestion(std::string_view word, std::span<const std::string> words);

}  // namespace fsdp
