// SPDX-License-Identifier: Apache-2.0
#include "syntax.hpp"

#include <algorithm>
#include <array>
#include <optional>

#include <tessera/fsdp/core/error.hpp>
#include <tessera/fsdp/core/terminal_text.hpp>

#include "../../unicode/code_points.hpp"
#include "../strings.hpp"

namespace fsdp::text::jinja {
namespace {

constexpr std::array<std::string_view, 29> signs = {  // longer ones first
    "**", "//", "==", "!=", "<=", ">=", "+", "-", "*", "/", "%", "~", "<", ">", "=",
    "(",  ")",  "[",  "]",  "{",  "}",  ",", ".", ":", "|", ";", "!", "&", "^"};

constexpr std::size_t most_name = 256;  // bytes; names are compared at every use

bool is_digit(char c) { return c >= '0' && c <= '9'; }
bool begins_name(char c) { return (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z') || c == '_'; }
bool in_name(char c) { return begins_name(c) || is_digit(c); }

/// Normalizes line ends to "\n" and removes one at the text's end, as Jinja does.
std::string with_plain_lines(std::string_view text) {
  std::string out;
  for (std::size_t i = 0; i < text.size(); ++i) {
    if (text[i] != '\r')
      out += text[i];
    else if (!text.substr(i + 1).starts_with('\n'))
      out += '\n';
  }
  if (out.ends_with('\n')) out.pop_back();
  return out;
}

class Lexer {
 public:
  Lexer(std::string_view text, const std::string& source) : text_(text), source_(source) {}

  std::vector<Token> run() {
    while (at_ < text_.size()) {
      const std::size_t tag = next_tag();
      take_text(tag);
      if (at_ == text_.size()) break;
      const char kind = text_[at_ + 1];
      if (kind == '#')
        skip_comment();
      else if (kind == '%' && take_raw())
        continue;
      else
        take_tag(kind == '%');
    }
    add(Kind::end, "");
    return std::move(tokens_);
  }

 private:
  template <class... Parts>
  [[noreturn]] void refuse(const Parts&... parts) const {
    throw InputError(message(source_, ": line ", line_, ": ", shortened_part(parts)...));
  }

  void add(Kind kind, std::string text) { tokens_.push_back({.kind = kind, .text = std::move(text), .line = line_}); }

  bool starts(std::string_view what) const { return text_.substr(at_).starts_with(what); }

  /// Advances and counts lines.
  void skip(std::size_t bytes) {
    line_ += static_cast<int>(std::count(text_.begin() + static_cast<std::ptrdiff_t>(at_),
                                         text_.begin() + static_cast<std::ptrdiff_t>(at_ + bytes), '\n'));
    at_ += bytes;
  }

  std::size_t next_tag() const {
    for (std::size_t i = text_.find('{', at_); i != text_.npos; i = text_.find('{', i + 1)) {
      if (i + 1 < text_.size() && (text_[i + 1] == '{' || text_[i + 1] == '%' || text_[i + 1] == '#')) return i;
    }
    return text_.size();
  }

  /// Reads the text up to a tag or the end, without the white space that the tag strips.
  void take_text(std::size_t end) {
    std::string_view text = text_.substr(at_, end - at_);
    const std::string_view tag = text_.substr(end, 3);
    const char mark = tag.size() == 3 ? tag[2] : ' ';
    if (mark == '-') {
      text = strip_right(text);
    } else if (mark != '+' && !tag.empty() && tag[1] != '{') {
      const std::size_t line = text.rfind('\n') == text.npos ? 0 : text.rfind('\n') + 1;
      if ((line > 0 || at_line_start_) && strip(text.substr(line)).empty()) text = text.substr(0, line);
    }
    if (!text.empty()) add(Kind::text, std::string(text));
    skip(end - at_);
  }

  /// Strips white space after a tag: all of it after "-", one line end after a block.
  void close(bool strips, bool keeps, bool block) {
    if (strips) {
      const std::string_view rest = text_.substr(at_);
      const std::size_t length = rest.size() - strip_left(rest).size();
      at_line_start_ = length > 0 && rest[length - 1] == '\n';
      skip(length);
    } else {
      at_line_start_ = block && !keeps && starts("\n");
      if (at_line_start_) skip(1);
    }
  }

  void skip_comment() {
    const std::size_t end = text_.find("#}", at_ + 2);
    if (end == text_.npos) refuse("a comment has no end, '#}'");
    const char mark = end > at_ + 2 ? text_[end - 1] : ' ';
    skip(end + 2 - at_);
    close(mark == '-', mark == '+', true);
  }

  /// Reads {% raw %} to {% endraw %}, if the present tag is `raw`.
  bool take_raw() {
    const std::optional<Bounds> begin = bare_tag(at_, "raw");
    if (!begin) return false;
    skip(begin->end - at_);
    if (begin->strips) skip(text_.size() - at_ - strip_left(text_.substr(at_)).size());
    for (std::size_t i = text_.find("{%", at_); i != text_.npos; i = text_.find("{%", i + 2)) {
      const std::optional<Bounds> end = bare_tag(i, "endraw");
      if (!end) continue;
      at_line_start_ = false;
      take_text(i);
      skip(end->end - at_);
      close(end->strips, end->keeps, true);
      return true;
    }
    refuse("a raw block has no end, '{% endraw %}'");
  }

  struct Bounds {
    std::size_t end = 0;
    bool strips = false;
    bool keeps = false;
  };

  /// Matches "{% word %}" with any white space control ("-" or "+").
  std::optional<Bounds> bare_tag(std::size_t begin, std::string_view word) const {
    std::string_view rest = text_.substr(begin + 2);
    if (rest.starts_with('-') || rest.starts_with('+')) rest.remove_prefix(1);
    rest = strip_left(rest);
    if (!rest.starts_with(word)) return std::nullopt;
    rest = strip_left(rest.substr(word.size()));
    Bounds found{.strips = rest.starts_with('-'), .keeps = rest.starts_with('+')};
    if (found.strips || found.keeps) rest.remove_prefix(1);
    if (!rest.starts_with("%}")) return std::nullopt;
    found.end = text_.size() - rest.size() + 2;
    return found;
  }

  void take_tag(bool block) {
    add(block ? Kind::block_begin : Kind::print_begin, "");
    skip(2);
    if (starts("-") || starts("+")) skip(1);
    std::string open;  // brackets that are not closed yet
    for (;;) {
      skip(text_.size() - at_ - strip_left(text_.substr(at_)).size());
      if (at_ == text_.size()) refuse(block ? "a block has no end, '%}'" : "'{{' has no end, '}}'");
      if (open.empty() && take_end(block)) return;
      take_token(open);
    }
  }

  bool take_end(bool block) {
    const std::string_view sign = block ? "%}" : "}}";
    const bool strips = starts("-"), keeps = block && starts("+");
    const std::size_t marks = strips || keeps ? 1 : 0;
    if (!text_.substr(at_ + marks).starts_with(sign)) return false;
    add(block ? Kind::block_end : Kind::print_end, "");
    skip(sign.size() + marks);
    close(strips, keeps, block);
    return true;
  }

  void take_token(std::string& open) {
    const char c = text_[at_];
    if (begins_name(c)) {
      std::size_t end = at_;
      while (end < text_.size() && in_name(text_[end])) ++end;
      if (end - at_ > most_name)
        refuse("the name ", text_.substr(at_, end - at_), " has more than ", most_name, " bytes");
      add(Kind::name, std::string(text_.substr(at_, end - at_)));
      skip(end - at_);
    } else if (is_digit(c)) {
      take_number();
    } else if (c == '"' || c == '\'') {
      take_string(c);
    } else {
      const auto* sign = std::find_if(signs.begin(), signs.end(), [&](std::string_view s) { return starts(s); });
      if (sign == signs.end())
        refuse("'", text_.substr(at_, utf8_length(static_cast<unsigned char>(c))), "' is no sign of a template");
      balance(*sign, open);
      add(Kind::sign, std::string(*sign));
      skip(sign->size());
    }
  }

  void balance(std::string_view sign, std::string& open) const {
    if (sign == "(" || sign == "[" || sign == "{") open += sign == "(" ? ')' : sign == "[" ? ']' : '}';
    if (sign != ")" && sign != "]" && sign != "}") return;
    if (open.empty() || open.back() != sign[0]) refuse("'", sign, "' closes nothing");
    open.pop_back();
  }

  void take_number() {
    const auto behind_digits = [&](std::size_t i) {
      return std::min(text_.find_first_not_of("0123456789_", i), text_.size());
    };
    const auto digit_at = [&](std::size_t i) { return i < text_.size() && is_digit(text_[i]); };
    std::size_t end = behind_digits(at_);
    bool fraction = text_.substr(end).starts_with('.') && digit_at(end + 1);
    if (fraction) end = behind_digits(end + 1);
    if (end < text_.size() && (text_[end] == 'e' || text_[end] == 'E')) {
      const bool is_signed = end + 1 < text_.size() && (text_[end + 1] == '-' || text_[end + 1] == '+');
      const std::size_t exponent = end + (is_signed ? 2 : 1);
      fraction = fraction || digit_at(exponent);
      if (digit_at(exponent)) end = behind_digits(exponent);
    }
    std::string digits(text_.substr(at_, end - at_));
    std::erase(digits, '_');
    add(fraction ? Kind::fraction : Kind::whole, digits);
    skip(end - at_);
  }

  void take_string(char quote) {
    std::string out;
    std::size_t i = at_ + 1;
    while (i < text_.size() && text_[i] != quote) {
      if (text_[i] == '\\')
        i = take_escape(i + 1, out);
      else
        out += text_[i++];
    }
    if (i >= text_.size()) refuse("a text in quotes has no end");
    add(Kind::string, out);
    skip(i + 1 - at_);
  }

  /// Decodes one of Python's escapes. Returns where the text continues.
  std::size_t take_escape(std::size_t i, std::string& out) const {
    static constexpr std::string_view letters = "\\'\"abfnrtv", meanings = "\\'\"\a\b\f\n\r\t\v";
    const char c = i < text_.size() ? text_[i] : ' ';
    const std::size_t found = letters.find(c);
    if (c == '\n') return i + 1;
    if (found != letters.npos) {
      out += meanings[found];
      return i + 1;
    }
    const std::size_t digits = c == 'x' ? 2 : c == 'u' ? 4 : c == 'U' ? 8 : 0;
    if (digits > 0) return take_code(i + 1, digits, 16, out);
    if (c >= '0' && c <= '7') {
      std::size_t count = 1;
      while (count < 3 && i + count < text_.size() && text_[i + count] >= '0' && text_[i + count] <= '7') ++count;
      return take_code(i, count, 8, out);
    }
    if (c == 'N') refuse("characters by their name, \\N{..}, are not known");
    out += '\\';  // Python keeps an unknown escape
    return i;
  }

  std::size_t take_code(std::size_t i, std::size_t digits, int base, std::string& out) const {
    const std::string_view text = text_.substr(i, digits);
    const std::optional<std::int64_t> code = whole_number(text, base);
    const bool valid = text.size() == digits && code && *code < code_point_end && (*code < 0xD800 || *code >= 0xE000);
    if (!valid) refuse("the escape of '", text, "' is no character");
    append_utf8(out, static_cast<char32_t>(*code));
    return i + digits;
  }

  std::string_view text_;
  const std::string& source_;
  std::size_t at_ = 0;
  int line_ = 1;
  bool at_line_start_ = true;
  std::vector<Token> tokens_;
};

}  // namespace

std::vector<Token> tokens_of(std::string_view text, const std::string& source) {
  require<InputError>(valid_length(text) == text.size(), source, ": is not UTF-8");
  const std::string plain = with_plain_lines(text);
  return Lexer(plain, source).run();
}

}  // namespace fsdp::text::jinja
