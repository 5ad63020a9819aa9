// SPDX-License-Identifier: Apache-2.0
/// @file
/// Python's string functions. All texts are valid UTF-8; lengths and indices count code points. The functions spend a
/// step for every 16 bytes that they read and for each part that they return, see value.hpp.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

namespace fsdp::text::jinja {

bool is_space(char32_t code);  ///< as str.isspace()

// Strip white space, or the characters in `of`.
std::string_view strip_left(std::string_view text, std::optional<std::string_view> of = {});
std::string_view strip_right(std::string_view text, std::optional<std::string_view> of = {});
std::string_view strip(std::string_view text, std::optional<std::string_view> of = {});

std::int64_t length_of(std::string_view text);
std::vector<std::string_view> characters(std::string_view text);

// Map single code points: a character whose other case has several code points (such as ß) stays unchanged.
std::string upper(std::string_view text);
std::string lower(std::string_view text);
std::string capitalize(std::string_view text);
std::string title(std::string_view text);

/// Splits at separators, or at runs of white space if none is given; at most `most` times, from the left; a negative
/// `most` means no limit.
std::vector<std::string_view> split(std::string_view text, std::optional<std::string_view> separator,
                                    std::int64_t most = -1);
std::vector<std::string_view> split_right(std::string_view text, std::optional<std::string_view> separator,
                                          std::int64_t most = -1);
std::vector<std::string_view> split_lines(std::string_view text, bool keep_ends = false);

/// Spends the worst-case steps of searching `text` for `what`, see search_steps.
void spend_search(std::string_view text, std::string_view what);

/// Replaces `what` by `by`, at most `most` times; a negative `most` means no limit.
std::string replaced(std::string_view text, std::string_view what, std::string_view by, std::int64_t most = -1);

/// Parses a whole number with an optional sign; returns nothing for any other text.
std::optional<std::int64_t> whole_number(std::string_view text, int base = 10);
std::optional<double> real_number(std::string_view text);

bool is_alphabetic(char32_t code);
bool is_decimal_digit(char32_t code);
bool is_upper(char32_t code);
bool is_lower(char32_t code);

}  // namespace fsdp::text::jinja
