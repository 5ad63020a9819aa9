// SPDX-License-Identifier: Apache-2.0
#include "byte_alphabet.hpp"

#include <array>

#include "../../fsdp/core/strings.hpp"
#include "../unicode/code_points.hpp"

namespace fsdp::text {
namespace {

struct Alphabet {
  std::array<std::string, 256> characters;
  std::array<int, 0x200> bytes{};  // the byte for each code point; -1 if there is none

  Alphabet() {
    bytes.fill(-1);
    char32_t moved = 0x100;  // invisible bytes get the characters after Latin-1, in order
    for (unsigned byte = 0; byte < 256; ++byte) {
      const bool visible = (byte >= '!' && byte <= '~') || (byte >= 0xA1 && byte <= 0xAC) || byte >= 0xAE;
      const char32_t code = visible ? byte : moved++;
      append_utf8(characters[byte], code);
      bytes[code] = static_cast<int>(byte);
    }
  }
};

const Alphabet& alphabet() {
  static const Alphabet the_alphabet;
  return the_alphabet;
}

constexpr std::string_view digits_of_16 = "0123456789ABCDEF";

}  // namespace

const std::string& character_of_byte(unsigned char byte) { return alphabet().characters[byte]; }

bool append_bytes(std::string& out, std::string_view token) {
  const std::size_t size = out.size();
  for (std::size_t at = 0; at < token.size();) {
    const char32_t code = next_code_point(token, at);
    const int byte = code < 0x200 ? alphabet().bytes[code] : -1;
    if (byte < 0) {
      out.resize(size);
      return false;
    }
    out += static_cast<char>(byte);
  }
  return true;
}

std::optional<unsigned char> byte_of_fallback(std::string_view token) {
  if (token.size() != 6 || !token.starts_with("<0x") || token[5] != '>') return std::nullopt;
  std::string_view digits = token.substr(3, 2);
  if (digits[0] == '+') digits.remove_prefix(1);  // Rust accepts a sign, too
  return parsed<unsigned char>(digits, 16);
}

std::string fallback_of_byte(unsigned char byte) {
  return std::string("<0x") + digits_of_16[byte >> 4] + digits_of_16[byte & 15] + '>';
}

}  // namespace fsdp::text
