// SPDX-License-Identifier: Apache-2.0
/// @file
/// Splits a template into tokens, with Jinja's white space rules for trim_blocks and lstrip_blocks.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

namespace fsdp::text::jinja {

enum class Kind : std::uint8_t {
  text,         ///< text outside of tags
  print_begin,  ///< {{
  print_end,    ///< }}
  block_begin,  ///< {%
  block_end,    ///< %}
  name,
  string,  ///< with escapes decoded
  whole,   ///< only digits
  fraction,
  sign,  ///< an operator or bracket
  end
};

struct Token {
  Kind kind = Kind::end;
  std::string text = {};
  int line = 0;
};

/// Throws InputError "`source`: line N: ..." for an invalid or unterminated token.
std::vector<Token> tokens_of(std::string_view text, const std::string& source);

}  // namespace fsdp::text::jinja
