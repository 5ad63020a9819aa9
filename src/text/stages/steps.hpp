// SPDX-License-Identifier: Apache-2.0
/// @file
/// Functions shared by the readers of a tokenizer's stages: they read sequences of steps, patterns and characters.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "../../fsdp/core/json/strict_json.hpp"

namespace fsdp::text {

inline constexpr std::int64_t largest_id = 0x7FFFFFFF;

/// Returns the entries at `key` of a Sequence, with nested Sequences flattened; the stage itself if it is not a
/// Sequence.
std::vector<Keys> steps_of(const Keys& stage, const char* key);

/// Returns the text at `key`, which must be exactly one character.
std::string character_at(const Keys& keys, const char* key);

/// {"String": ..} if `literal`, else {"Regex": ..}.
struct PatternText {
  bool literal = false;
  std::string text;
};
/// Reads the "pattern" of a step.
PatternText read_pattern_text(const Keys& step);

}  // namespace fsdp::text
