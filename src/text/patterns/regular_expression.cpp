// SPDX-License-Identifier: Apache-2.0
#include "regular_expression.hpp"

#include <algorithm>
#include <array>
#include <utility>

#define PCRE2_CODE_UNIT_WIDTH 8
#include <pcre2.h>

#include <tessera/fsdp/core/error.hpp>
#include <tessera/fsdp/core/terminal_text.hpp>

#include "../../fsdp/core/strings.hpp"

namespace fsdp::text {

template <auto free>
struct Free {
  template <class T>
  void operator()(T* object) const {
    free(object);
  }
};

/// A pattern compiled by PCRE2, with its JIT if available.
struct PatternCode {
  std::unique_ptr<pcre2_code, Free<pcre2_code_free>> code;
  bool jit = false;
};

namespace {

constexpr std::size_t symbols_beyond_ascii = 128;

/// Maps the characters of a pattern to bytes: ASCII to itself, and other characters to symbols from 128 on. Characters
/// that are in the same sets have the same symbol. Takes time proportional to the number of ranges in the pattern's
/// sets.
class PatternAlphabet {
 public:
  PatternAlphabet(const std::vector<PatternPart>& parts, const std::string& source) {
    std::vector<std::vector<CodePointRange>> sets;  // distinct sets, without ASCII
    for (const PatternPart& part : parts) {
      std::vector<CodePointRange> set;
      for (const CodePointRange& range : part.set.ranges())
        if (range.end > 0x80) set.push_back({std::max<char32_t>(range.begin, 0x80), range.end});
      if (!set.empty()) sets.push_back(std::move(set));
    }
    const auto sort_distinct = [](auto& all) {
      std::ranges::sort(all);
      all.erase(std::unique(all.begin(), all.end()), all.end());
    };
    sort_distinct(sets);
    for (const auto& set : sets)
      for (const CodePointRange& range : set) borders_.insert(borders_.end(), {range.begin, range.end});
    sort_distinct(borders_);
    symbols_.resize(borders_.size() - 1);
    Members members{symbols_.size()};  // number of intervals of each symbol
    std::size_t count = 1;
    for (const auto& set : sets) count = split(set, members, count, source);
  }

  /// Returns a set in the syntax of PCRE2.
  std::string text_of(const CodePointSet& set) const {
    std::array<bool, 256> member{};
    for (const CodePointRange& range : set.ranges())
      for (char32_t code = range.begin; code < std::min<char32_t>(range.end, 0x80); ++code) member[code] = true;
    each(set.ranges(), [&](std::size_t interval) { member[0x80 + symbols_[interval]] = true; });
    std::string text;
    for (std::size_t begin = 0; begin < 256;) {
      std::size_t end = begin;
      while (end < 256 && member[end]) ++end;
      const auto hex = [&](std::size_t byte) { return "\\x" + hexadecimal(byte, 2); };
      if (end > begin) text += hex(begin) + (end - begin > 1 ? "-" + hex(end - 1) : "");
      begin = end + 1;
    }
    return text.empty() ? "[^\\x00-\\xff]" : "[" + text + "]";
  }

  /// Returns the symbol of each character, minus 128.
  CodePointTable table() const {
    return CodePointTable([&](std::vector<std::uint8_t>& symbols) {
      for (std::size_t i = 0; i < symbols_.size(); ++i)
        std::fill(symbols.begin() + borders_[i], symbols.begin() + borders_[i + 1], symbols_[i]);
    });
  }

 private:
  using Members = std::array<std::size_t, symbols_beyond_ascii>;

  /// Visits the intervals of ranges. Only the first range may begin before the first interval.
  template <class Visit>
  void each(const std::vector<CodePointRange>& ranges, const Visit& visit) const {
    for (const CodePointRange& range : ranges) {
      auto i = static_cast<std::size_t>(std::ranges::lower_bound(borders_, range.begin) - borders_.begin());
      for (; i < symbols_.size() && borders_[i] < range.end; ++i) visit(i);
    }
  }

  /// Splits each symbol that has some intervals inside a set and some outside. Returns the new number of symbols.
  std::size_t split(const std::vector<CodePointRange>& set, Members& members, std::size_t count,
                    const std::string& source) {
    Members chosen{}, inside{};  // for each symbol: number of its intervals in the set, and their new symbol
    each(set, [&](std::size_t interval) { ++chosen[symbols_[interval]]; });
    for (std::size_t symbol = 0, end = count; symbol < end; ++symbol) {
      if (chosen[symbol] == 0 || chosen[symbol] == members[symbol]) continue;
      require<InputError>(count < symbols_beyond_ascii, source, ": a regular expression tells more than ",
                          symbols_beyond_ascii, " kinds of characters apart; name fewer of them");
      members[symbol] -= chosen[symbol];
      members[count] = chosen[symbol];
      inside[symbol] = count++;
    }
    each(set, [&](std::size_t interval) {
      if (const std::size_t symbol = inside[symbols_[interval]]; symbol != 0)
        symbols_[interval] = static_cast<std::uint8_t>(symbol);
    });
    return count;
  }

  std::vector<char32_t> borders_ = {0x80, code_point_end};  // where the membership in some set changes
  std::vector<std::uint8_t> symbols_;  // for each interval between two borders: its symbol, minus 128
};

// There are two matchers with identical results. The quick matcher is bounded: it sees only a window of the text, and
// gives up after a few backtracking steps. If it ends without a result, the counted matcher continues for one window:
// PCRE2 invokes a callout at each part of the pattern, and each callout spends steps. (PCRE2's own limits do not count
// repetitions of a set, and restart at each character of the text.)
constexpr std::size_t window = 256;               // bytes
constexpr std::uint32_t quick_limit = 64;         // PCRE2's match limit
constexpr std::size_t most_quick_pattern = 2000;  // bytes: even the quick matcher would take long for a longer pattern
constexpr std::size_t first_stack = 64 * 1024, largest_stack = 16 * 1024 * 1024;

using MatchData = std::unique_ptr<pcre2_match_data, Free<pcre2_match_data_free>>;
using MatchContext = std::unique_ptr<pcre2_match_context, Free<pcre2_match_context_free>>;
using JitStack = std::unique_ptr<pcre2_jit_stack, Free<pcre2_jit_stack_free>>;

/// The steps of the counted matcher, added by its callouts.
struct Count {
  std::size_t steps = 0, most = 0;
  PCRE2_SIZE place = 0;

  static int add(pcre2_callout_block* at, void* count) {
    Count& mine = *static_cast<Count*>(count);
    const PCRE2_SIZE now = at->current_position;
    mine.steps += 1 + (now > mine.place ? now - mine.place : mine.place - now) / 16;
    mine.place = now;
    return mine.steps > mine.most ? PCRE2_ERROR_CALLOUT : 0;
  }
};

/// A thread's workspace for matching.
struct Workspace {
  MatchData match{pcre2_match_data_create(1, nullptr)};
  MatchContext quick{pcre2_match_context_create(nullptr)}, counted{pcre2_match_context_create(nullptr)};
  JitStack stack{pcre2_jit_stack_create(first_stack, largest_stack, nullptr)};
  const PCRE2_SIZE* found = pcre2_get_ovector_pointer(match.get());  // begin and end offsets of the last match
  Count count;
  std::string symbols;
  std::vector<std::size_t> places;  // byte offset of each symbol's character

  Workspace() {
    require<MemoryError>(match && quick && counted && stack, "no memory to match a regular expression with");
    pcre2_set_match_limit(quick.get(), quick_limit);
    pcre2_set_match_limit(counted.get(), UINT32_MAX);
    pcre2_set_callout(counted.get(), &Count::add, &count);
    for (const MatchContext* context : {&quick, &counted}) pcre2_jit_stack_assign(context->get(), nullptr, stack.get());
  }
  Workspace(const Workspace&) = delete;
  Workspace& operator=(const Workspace&) = delete;
};

Workspace& workspace() {
  thread_local Workspace mine;
  return mine;
}

/// Matches the first `end` characters of a text, from `at` on.
int match(const PatternCode& pattern, std::string_view text, std::size_t end, std::size_t at, std::uint32_t options,
          Workspace& work, const MatchContext& context) {
  return (pattern.jit ? pcre2_jit_match : pcre2_match)(pattern.code.get(), reinterpret_cast<PCRE2_SPTR>(text.data()),
                                                       end, at, options, work.match.get(), context.get());
}

PatternCode compile(const std::string& bytes, std::uint32_t options, std::uint32_t jit, std::string_view pattern,
                    const std::string& source) {
  int error = 0;
  PCRE2_SIZE place = 0;
  PatternCode made;
  made.code.reset(
      pcre2_compile(reinterpret_cast<PCRE2_SPTR>(bytes.data()), bytes.size(), options, &error, &place, nullptr));
  if (!made.code) {
    std::array<char, 256> reason{};
    pcre2_get_error_message(error, reinterpret_cast<PCRE2_UCHAR*>(reason.data()), reason.size());
    throw InputError(
        message(source, ": the regular expression \"", shortened(pattern), "\" is refused by PCRE2: ", reason.data()));
  }
  made.jit = pcre2_jit_compile(made.code.get(), jit) == 0;
  return made;
}

}  // namespace

struct RegularExpression::Compiled {
  std::string pattern;
  std::string source;
  CodePointTable symbols;
  PatternCode quick, counted;

  /// Runs the counted matcher for matches that begin in [at, at + window]. Returns PCRE2's result.
  int count(std::string_view subject, std::size_t at, Workspace& work, Budget& budget) const {
    work.count = {.steps = 0, .most = budget.left(), .place = at};
    pcre2_set_offset_limit(work.counted.get(), at + window);
    const int result = match(counted, subject, subject.size(), at, 0, work, work.counted);
    budget.spend(work.count.steps);
    require<InputError>(result >= 0 || result == PCRE2_ERROR_NOMATCH, source, ": the regular expression \"",
                        shortened(pattern), "\" needs too much memory on a text of ", subject.size(), " characters");
    return result;
  }

  /// Finds the first match that begins at `at` or later, and stores it in work.found. Returns false if there is none.
  bool find(std::string_view subject, std::size_t at, Workspace& work, Budget& budget) const {
    while (at <= subject.size()) {
      if (quick.code) {
        const std::size_t end = std::min(subject.size(), at + window);
        const bool cut = end < subject.size();
        const int result = match(quick, subject, end, at, cut ? PCRE2_PARTIAL_HARD : 0, work, work.quick);
        const bool at_end = cut && work.found[0] == end;  // with more text visible, it might match differently
        if (result >= 0 && !at_end) return true;
        if (result >= 0 || result == PCRE2_ERROR_NOMATCH) {
          at = cut ? end : end + 1;
          continue;
        }
        if (result == PCRE2_ERROR_PARTIAL && work.found[0] > at) {  // a match that begins there needs more visible text
          at = work.found[0];
          continue;
        }
      }
      if (count(subject, at, work, budget) >= 0) return true;
      at += window + 1;
    }
    return false;
  }
};

RegularExpression::RegularExpression(std::string_view pattern, const std::string& source) {
  const std::vector<PatternPart> parts = read_pattern(pattern, source);
  const PatternAlphabet alphabet(parts, source);
  std::string bytes;
  for (const PatternPart& part : parts) bytes += part.syntax.empty() ? alphabet.text_of(part.set) : part.syntax;
  // PCRE2 10.42 wrongly makes `e{0,2}` in `e{0,2}(?:p)?+e` possessive, and misses "e".
  constexpr std::uint32_t options = PCRE2_NEVER_UTF | PCRE2_NEVER_UCP | PCRE2_NO_AUTO_POSSESS;
  constexpr std::uint32_t counts = PCRE2_AUTO_CALLOUT | PCRE2_NO_START_OPTIMIZE | PCRE2_USE_OFFSET_LIMIT;
  PatternCode counted = compile(bytes, options | counts, PCRE2_JIT_COMPLETE, pattern, source);
  PatternCode quick;
  if (pattern.size() <= most_quick_pattern)
    quick = compile(bytes, options, PCRE2_JIT_COMPLETE | PCRE2_JIT_PARTIAL_HARD, pattern, source);
  compiled_ = std::make_shared<const Compiled>(
      Compiled{std::string(pattern), source, alphabet.table(), std::move(quick), std::move(counted)});
}

std::string_view RegularExpression::text() const { return compiled_->pattern; }

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

void RegularExpression::find_all(std::string_view text, std::vector<Match>& matches, Budget& budget) const {
  Workspace& work = workspace();
  std::string_view subject = text.empty() ? "" : text;  // a lookbehind would read before a null pointer
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

  std::size_t at = 0;
  bool after_match = false;  // a match ended at `at`
  while (compiled_->find(subject, at, work, budget)) {
    const std::size_t begin = work.found[0], end = work.found[1];
    if (begin == end && after_match && begin == at) {
      ++at;
      after_match = false;
      continue;
    }
    at = end;
    after_match = true;
    matches.push_back(ascii ? Match{begin, end} : Match{work.places[begin], work.places[end]});
  }
}

}  // namespace fsdp::text
