// SPDX-License-Identifier: Apache-2.0
/// @file
/// Unicode's normalization forms, of the version of Unicode that the Python package `tokenizers` normalizes by.
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

}  // namespace fsdp::text
