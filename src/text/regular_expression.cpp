// SPDX-License-Identifier: Apache-2.0
#include "regular_expression.hpp"

#include <array>
#include <map>
#include <utility>

#define PCRE2_CODE_UNIT_WIDTH 8
#include <pcre2.h>

#include <fsdp/core/error.hpp>

#include "pattern.hpp"

namespace fsdp::text {

template <auto free>
struct Free {
  template <class T>
  void operator()(T* object) const {
    free(object);
  }
};

using Code = std::unique_ptr<pcre2_code, Free<pcre2_code_free>>;

namespace {

constexpr std::uint32_t match_limit = 10'000'000;
constexpr std::size_t first_stack = 64 * 1024, largest_stack = 16 * 1024 * 1024;
constexpr std::size_t symbols_beyond_ascii = 128;

using MatchData = std::unique_ptr<pcre2_match_data, Free<pcre2_match_data_free>>;
using MatchContext = std::unique_ptr<pcre2_match_context, Free<pcre2_match_context_free>>;
using JitStack = std::unique_ptr<pcre2_jit_stack, Free<pcre2_jit_stack_free>>;

/// A thread's workspace for matching.
struct Workspace {
  MatchData match{pcre2_match_data_create(1, nullptr)};
  MatchContext context{pcre2_match_context_create(nullptr)};
  JitStack stack{pcre2_jit_stack_create(first_stack, largest_stack, nullptr)};
  std::string symbols;
  std::vector<std::size_t> places;  // byte where each symbol's character begins

  Workspace() {
    require<MemoryError>(match && context && stack, "no memory to match a regular expression with");
    pcre2_set_match_limit(context.get(), match_limit);
    pcre2_jit_stack_assign(context.get(), nullptr, stack.get());
  }
};

Workspace& workspace() {
  thread_local Workspace mine;
  return mine;
}

/// Maps characters beyond ASCII to symbols from 128 on; characters that are in the same sets share a symbol.
CodePointTable make_symbols(const std::vector<PatternPart>& parts, const std::string& source) {
  return CodePointTable([&](std::vector<std::uint8_t>& symbols) {
    // Starts with one symbol for all characters; splits a symbol if a set has only some of its characters.
    std::size_t count = 1;
    std::array<std::size_t, symbols_beyond_ascii> members{code_point_end - 0x80};  // how many have each symbol
    for (const PatternPart& part : parts) {
      std::map<std::uint8_t, std::uint8_t> inside;  // new symbol for members of the set, by old symbol
      std::array<std::size_t, symbols_beyond_ascii> chosen{};
      const auto each = [&](auto&& visit) {
        for (const CodePointRange& range : part.set.ranges())
          for (char32_t code = std::max<char32_t>(range.begin, 0x80); code < range.end; ++code) visit(symbols[code]);
      };
      each([&](std::uint8_t symbol) { ++chosen[symbol]; });
      for (std::size_t symbol = 0, end = count; symbol < end; ++symbol) {
        if (chosen[symbol] == 0 || chosen[symbol] == members[symbol]) continue;
        require<InputError>(count < symbols_beyond_ascii, source, ": a regular expression tells more than ",
                            symbols_beyond_ascii, " kinds of characters apart; name fewer of them");
        members[symbol] -= chosen[symbol];
        members[count] = chosen[symbol];
        inside[static_cast<std::uint8_t>(symbol)] = static_cast<std::uint8_t>(count++);
      }
      if (inside.empty()) continue;
      each([&](std::uint8_t& symbol) {
        if (const auto split = inside.find(symbol); split != inside.end()) symbol = split->second;
      });
    }
  });
}

/// Writes a set in the alphabet of bytes.
std::string set_of_bytes(const CodePointSet& set, const CodePointTable& symbols) {
  std::array<bool, 256> member{};
  for (const CodePointRange& range : set.ranges())
    for (char32_t code = range.begin; code < range.end; ++code)
      member[code < 0x80 ? code : 0x80 + symbols[code]] = true;
  constexpr std::string_view digits = "0123456789abcdef";
  std::string text;
  for (std::size_t begin = 0; begin < 256;) {
    std::size_t end = begin;
    while (end < 256 && member[end]) ++end;
    const auto hex = [&](std::size_t byte) { return std::string("\\x") + digits[byte >> 4] + digits[byte & 15]; };
    if (end > begin) text += hex(begin) + (end - begin > 1 ? "-" + hex(end - 1) : "");
    begin = end + 1;
  }
  return text.empty() ? "[^\\x00-\\xff]" : "[" + text + "]";
}

}  // namespace

struct RegularExpression::Compiled {
  std::string pattern;
  std::string source;
  CodePointTable symbols;
  Code code;
  bool jit = false;
};

RegularExpression::RegularExpression(std::unique_ptr<const Compiled> compiled) : compiled_(std::move(compiled)) {}
RegularExpression::~RegularExpression() = default;
RegularExpression::RegularExpression(RegularExpression&&) noexcept = default;
RegularExpression& RegularExpression::operator=(RegularExpression&&) noexcept = default;

RegularExpression::RegularExpression(std::string_view pattern, const std::string& source) {
  const std::vector<PatternPart> parts = read_pattern(pattern, source);
  CodePointTable symbols = make_symbols(parts, source);
  std::string bytes;
  for (const PatternPart& part : parts) bytes += part.syntax.empty() ? set_of_bytes(part.set, symbols) : part.syntax;

  int error = 0;
  PCRE2_SIZE place = 0;
  // PCRE2 10.42 wrongly makes `e{0,2}` in `e{0,2}(?:p)?+e` possessive, and misses "e".
  constexpr std::uint32_t options = PCRE2_NEVER_UTF | PCRE2_NEVER_UCP | PCRE2_NO_AUTO_POSSESS;
  Code code(pcre2_compile(reinterpret_cast<PCRE2_SPTR>(bytes.data()), bytes.size(), options, &error, &place, nullptr));
  if (!code) {
    std::array<char, 256> reason{};
    pcre2_get_error_message(error, reinterpret_cast<PCRE2_UCHAR*>(reason.data()), reason.size());
    throw InputError(
        message(source, ": the regular expression \"", pattern, "\" is refused by PCRE2: ", reason.data()));
  }
  const bool jit = pcre2_jit_compile(code.get(), PCRE2_JIT_COMPLETE) == 0;
  compiled_ = std::make_unique<const Compiled>(
      Compiled{std::string(pattern), source, std::move(symbols), std::move(code), jit});
}

RegularExpression RegularExpression::of_literal(std::string_view text, const std::string& source) {
  std::string pattern;
  for (const char c : text) {
    const bool plain =
        static_cast<unsigned char>(c) >= 0x80 || (c >= '0' && c <= '9') || ((c | 0x20) >= 'a' && (c | 0x20) <= 'z');
    if (!plain) pattern += '\\';
    pattern += c;
  }
  return RegularExpression(pattern, source);
}

void RegularExpression::find_all(std::string_view text, std::vector<Match>& matches) const {
  Workspace& work = workspace();
  std::string_view subject = text;
  const bool ascii = is_ascii(text);
  if (!ascii) {
    work.symbols.clear();
    work.places.clear();
    work.symbols.reserve(text.size());
    work.places.reserve(text.size() + 1);
    for (std::size_t at = 0; at < text.size();) {
      work.places.push_back(at);
      const char32_t code = next_code_point(text, at);
      work.symbols += static_cast<char>(code < 0x80 ? code : 0x80 + compiled_->symbols[code]);
    }
    work.places.push_back(text.size());
    subject = work.symbols;
  }

  const auto* const begin = reinterpret_cast<PCRE2_SPTR>(subject.data());
  const PCRE2_SIZE* const found = pcre2_get_ovector_pointer(work.match.get());
  std::size_t at = 0;
  bool after_match = false;  // a match ended at `at`
  while (at <= subject.size()) {
    const int result = (compiled_->jit ? pcre2_jit_match : pcre2_match)(compiled_->code.get(), begin, subject.size(),
                                                                        at, 0, work.match.get(), work.context.get());
    if (result == PCRE2_ERROR_NOMATCH) return;
    require<InputError>(result >= 0, compiled_->source, ": the regular expression \"", compiled_->pattern,
                        "\" took more than ", match_limit, " steps on a text of ", text.size(),
                        " bytes; it goes back and forth too often to be used on it");
    if (found[0] == found[1] && after_match && found[0] == at) {
      ++at;
      after_match = false;
      continue;
    }
    at = found[1];
    after_match = true;
    matches.push_back(ascii ? Match{found[0], found[1]} : Match{work.places[found[0]], work.places[found[1]]});
  }
}

}  // namespace fsdp::text
