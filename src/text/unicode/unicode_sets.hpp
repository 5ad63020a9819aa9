// SPDX-License-Identifier: Apache-2.0
/// @file
/// Sets of code points as in the Python package `tokenizers` (see make_unicode_ranges.py).
#pragma once

#include <optional>
#include <string_view>

#include "code_point_set.hpp"

namespace fsdp::text {

/// Returns a set of unicode_tables by its name: "space", "word", "numeric", ... Throws LogicError for an unknown name.
const CodePointSet& unicode_set(std::string_view name);

/// Returns the set of a property: a general category ("Lu"), a group of them ("L"), their long names ("Letter"), or a
/// script (Han, Hiragana, Katakana, Hangul). Ignores case, '_', '-' and ' '. Returns nothing for an unknown name.
std::optional<CodePointSet> property_set(std::string_view name);

}  // namespace fsdp::text
