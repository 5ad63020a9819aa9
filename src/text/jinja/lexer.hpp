// SPDX-License-Identifier: Apache-2.0
/// @file
/// A template's text as tokens, by Jinja's rules of white space with trim_blocks and lstrip_blocks on.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

namespace fsdp::text::jinja {

enum class Kind : std::uint8_t {
  text,         ///< what is written as it stands
  print_begin,  ///< {{
  print_end,    ///< }}
  block_begin,  ///< {%
  block_end,    ///< %}
  name,
  string,  ///< its escapes resolved
  whole,   ///< digits alone
  fraction,
  sign,  ///< an operator or bracket
  end
};

struct Token {
  Kind kind = Kind::end;
  std::string text = {};
  int line = 0;
};

/// Throws InputError "`source`: line N: ..." for what is no token, or has no end.
std::vector<Token> tokens_of(std::string_view text, const std::string& source);

}  // namespace fsdp::text::jinja
