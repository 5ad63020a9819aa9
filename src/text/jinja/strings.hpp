// SPDX-License-Identifier: Apache-2.0
/// @file
/// What Python's texts can do. All texts are valid UTF-8; lengths and places count code points.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

namespace fsdp::text::jinja {

bool is_space(char32_t code);  ///< as str.isspace() has it

// Without white space, or without the characters of `of`.
std::string_view strip_left(std::string_view text, std::optional<std::string_view> of = {});
std::string_view strip_right(std::string_view text, std::optional<std::string_view> of = {});
std::string_view strip(std::string_view text, std::optional<std::string_view> of = {});

std::int64_t length_of(std::string_view text);
std::vector<std::string_view> characters(std::string_view text);

// One code point for one: the case of a character that becomes several (as ß does) is left alone.
std::string upper(std::string_view text);
std::string lower(std::string_view text);
std::string capitalize(std::string_view text);
std::string title(std::string_view text);

/// Parts between separators, or between runs of white space where there is none; at most `most` cuts, from the left.
std::vector<std::string_view> split(std::string_view text, std::optional<std::string_view> separator,
                                    std::int64_t most = -1);
std::vector<std::string_view> split_right(std::string_view text, std::optional<std::string_view> separator,
                                          std::int64_t most = -1);
std::vector<std::string_view> split_lines(std::string_view text, bool keep_ends = false);

/// At most `most` replacements; below 0: all.
std::string replaced(std::string_view text, std::string_view what, std::string_view by, std::int64_t most = -1);

/// A whole number with its sign, and nothing else.
std::optional<std::int64_t> whole_number(std::string_view text, int base = 10);
std::optional<double> real_number(std::string_view text);

bool is_alphabetic(char32_t code);
bool is_decimal_digit(char32_t code);
bool is_upper(char32_t code);
bool is_lower(char32_t code);

}  // namespace fsdp::text::jinja
