// SPDX-License-Identifier: Apache-2.0
/// @file
/// Unicode's normalization forms, in the Unicode version that the Python package `tokenizers` uses, and simple case
/// mappings.
///
/// utf8proc provides decompositions, compositions and combining classes; tables from make_unicode_ranges.py specify the
/// code points to use them for. No other file uses utf8proc.
#pragma once

#include <string>
#include <string_view>

namespace fsdp::text {

enum class UnicodeForm { nfc, nfd, nfkc, nfkd };

/// Appends a text in UTF-8 in the given form. Takes linear time, also for long sequences of combining marks.
void append_normalized(std::string& out, std::string_view text, UnicodeForm form);

/// Return the upper or lower case of a code point, or itself: simple mappings of utf8proc's Unicode version.
char32_t upper_of(char32_t code);
char32_t lower_of(char32_t code);

}  // namespace fsdp::text
