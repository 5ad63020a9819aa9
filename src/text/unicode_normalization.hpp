// SPDX-License-Identifier: Apache-2.0
/// @file
/// Unicode's normalization forms, of the version of Unicode that the Python package `tokenizers` normalizes by, and the
/// simple mappings of case.
///
/// utf8proc gives decompositions and combining classes; tables of make_unicode_ranges.py say which code points have
/// any. No other file knows utf8proc.
#pragma once

#include <string>
#include <string_view>

namespace fsdp::text {

enum class UnicodeForm { nfc, nfd, nfkc, nfkd };

/// Appends the form of a text in UTF-8. Takes time in proportion to the text, whatever marks it piles up.
void append_normalized(std::string& out, std::string_view text, UnicodeForm form);

/// The one code point that is another's upper or lower case, or itself: Unicode's simple mappings, of utf8proc's
/// version.
char32_t upper_of(char32_t code);
char32_t lower_of(char32_t code);

}  // namespace fsdp::text
