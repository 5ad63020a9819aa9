// SPDX-License-Identifier: Apache-2.0
/// @file
/// Sets of code points as text, which make_unicode_ranges.py writes. Use unicode_sets.hpp.
#pragma once

#include <array>
#include <cstddef>

namespace fsdp::text {

/// "Lu3Ll": three code points of category Lu, one of Ll; from 0 on, all code points.
extern const char* const category_runs;

struct UnicodeTable {
  const char* name;
  const char* runs;  ///< lengths of runs outside, inside, outside, ... of the set, from 0 on
};

inline constexpr std::size_t unicode_table_count = 12;
extern const std::array<UnicodeTable, unicode_table_count> unicode_tables;

}  // namespace fsdp::text
