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

/// Returns the first of the words with the fewest edits; empty if there are no words.
std::string nearest(std::string_view word, std::span<const std::string> words);

/// Returns "did you mean 'tiny'? Known: tiny, small", to end a sentence about an unknown word.
std::string suggestion(std::string_view word, std::span<const std::string> words);

/// Throws InputError about a flag's value that is none of the names which it may have.
[[noreturn]] void refuse_unknown(std::string_view flag, std::string_view value, std::span<const std::string> names);

/// Returns where a flag's value stands among the names that it may have. Throws InputError if it is none of them.
std::size_t index_of_name(std::string_view flag, std::string_view value, std::span<const std::string> names);

}  // namespace fsdp
