// SPDX-License-Identifier: Apache-2.0
/// @file
/// Sets of code points as the Python package `tokenizers` has them: see make_unicode_ranges.py.
#pragma once

#include <optional>
#include <string_view>

#include "code_point_set.hpp"

namespace fsdp::text {

/// A set of unicode_tables by its name: "space", "word", "numeric", ... LogicError where there is none.
const CodePointSet& unicode_set(std::string_view name);

/// A general category ("Lu"), a group of them ("L"), their long names ("Letter"), or a script (Han, Hiragana, Katakana,
/// Hangul); upper and lower case, '_', '-' and ' ' make no difference.
std::optional<CodePointSet> property_set(std::string_view name);

}  // namespace fsdp::text
