// SPDX-License-Identifier: Apache-2.0
#include "regular_expression.hpp"

#include <algorithm>
#include <array>
#include <optional>
#include <utility>

#define PCRE2_CODE_UNIT_WIDTH 8
#include <pcre2.h>

#include <fsdp/core/error.hpp>
#include <fsdp/core/terminal_text.hpp>

#include "pattern.hpp"

namespace fsdp::text {

template <auto free>
struct Free {
  template <class T>
  void operator()(T* object) const {
    free(object);
  }
};

/// A pattern compiled by PCRE2, with its JIT where there is one.
struct PatternCode {
  std::unique_ptr<pcre2_code, Free<pcre2_code_free>> code;
  bool jit = false;
};

namespace {

// Matching has two ways with the same results. The quick one is bounded: it sees a window of the text, and gives up
// after a few steps backwards. Where it ends without a result, the counted one goes on for a window: PCRE2 calls back
// at each part of the pattern, and each call spends steps. (PCRE2's own limits do not count repetitions of a set, and
// begin anew at each character of the text.)
constexpr std::size_t window = 256;               // bytes
constexpr std::uint32_t quick_limit = 64;         // PCRE2's match limit
constexpr std::size_t most_quick_pattern = 2000;  // bytes: the parts of a long pattern would take long together
constexpr std::size_t first_stack = 64 * 1024, largest_stack = 16 * 1024 * 1024;
constexpr std::size_t symbols_beyond_ascii = 128;

using MatchData = std::unique_ptr<pcre2_match_data, Free<pcre2_match_data_free>>;
using MatchContext = std::unique_ptr<pcre2_match_context, Free<pcre2_match_context_free>>;
using JitStack = std::unique_ptr<pcre2_jit_stack, Free<pcre2_jit_stack_free>>;

/// Steps of the counted way.
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
  Count count;
  std::string symbols;
  std::vector<std::size_t> places;  // byte where each symbol's character begins

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

/// The bytes of a pattern's characters: ASCII, and symbols from 128 on for characters that are in the same sets.
class Alphabet {
 public:
  Alphabet(const std::vector<PatternPart>& parts, const std::string& source) {
    std::vector<std::vector<CodePointRange>> sets;  // beyond ASCII, each once
    borders_ = {0x80, code_point_end};
    for (const PatternPart& part : parts) {
      std::vector<CodePointRange> set;
      for (const CodePointRange& range : part.set.ranges())
        if (range.end > 0x80) set.push_back({std::max<char32_t>(range.begin, 0x80), range.end});
      if (!set.empty()) sets.push_back(std::move(set));
    }
    const auto less = [](const CodePointRange& a, const CodePointRange& b) {
      return std::pair(a.begin, a.end) < std::pair(b.begin, b.end);
    };
    std::sort(sets.begin(), sets.end(), [&](const auto& a, const auto& b) {
      return std::lexicographical_compare(a.begin(), a.end(), b.begin(), b.end(), less);
    });
    sets.erase(std::unique(sets.begin(), sets.end()), sets.end());
    for (const auto& set : sets)
      for (const CodePointRange& range : set) borders_.insert(borders_.end(), {range.begin, range.end});
    std::sort(borders_.begin(), borders_.end());
    borders_.erase(std::unique(borders_.begin(), borders_.end()), borders_.end());
    symbols_.resize(borders_.size() - 1);
    std::array<std::size_t, symbols_beyond_ascii> members{symbols_.size()};  // how many intervals have each symbol
    std::size_t count = 1;
    for (const auto& set : sets) count = split(set, members, count, source);
  }

  /// Writes a set.
  std::string text_of(const CodePointSet& set) const {
    std::array<bool, 256> member{};
    for (const CodePointRange& range : set.ranges())
      for (char32_t code = range.begin; code < std::min<char32_t>(range.end, 0x80); ++code) member[code] = true;
    each(set.ranges(), [&](std::size_t interval) { member[0x80 + symbols_[interval]] = true; });
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
      const auto first = std::lower_bound(borders_.begin(), borders_.end(), range.begin);
      for (auto i = static_cast<std::size_t>(first - borders_.begin()); i < symbols_.size() && borders_[i] < range.end;
           ++i)
        visit(i);
    }
  }

  /// Splits each symbol of which a set has only some intervals. Returns how many symbols there are then.
  std::size_t split(const std::vector<CodePointRange>& set, Members& members, std::size_t count,
                    const std::string& source) {
    Members chosen{}, inside{};  // how many of each symbol are in the set, and the new symbol for those
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

  std::vector<char32_t> borders_;      // between code points that some set tells apart
  std::vector<std::uint8_t> symbols_;  // by interval between two borders
};

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

  /// Finds the first match that begins at `at` or later.
  std::optional<Match> find(std::string_view subject, std::size_t at, Workspace& work, Budget& budget) const;

 private:
  /// A match, or the place where searching goes on.
  struct Step {
    std::optional<Match> match;
    std::size_t next = 0;
  };
  std::optional<Step> find_quickly(std::string_view subject, std::size_t at, Workspace& work) const;
  Step find_counted(std::string_view subject, std::size_t at, Workspace& work, Budget& budget) const;
};

RegularExpression::~RegularExpression() = default;
RegularExpression::RegularExpression(RegularExpression&&) noexcept = default;
RegularExpression& RegularExpression::operator=(RegularExpression&&) noexcept = default;

RegularExpression::RegularExpression(std::string_view pattern, const std::string& source) {
  const std::vector<PatternPart> parts = read_pattern(pattern, source);
  const Alphabet alphabet(parts, source);
  std::string bytes;
  for (const PatternPart& part : parts) bytes += part.syntax.empty() ? alphabet.text_of(part.set) : part.syntax;
  // PCRE2 10.42 wrongly makes `e{0,2}` in `e{0,2}(?:p)?+e` possessive, and misses "e".
  constexpr std::uint32_t options = PCRE2_NEVER_UTF | PCRE2_NEVER_UCP | PCRE2_NO_AUTO_POSSESS;
  constexpr std::uint32_t counts = PCRE2_AUTO_CALLOUT | PCRE2_NO_START_OPTIMIZE | PCRE2_USE_OFFSET_LIMIT;
  PatternCode counted = compile(bytes, options | counts, PCRE2_JIT_COMPLETE, pattern, source);
  PatternCode quick;
  if (pattern.size() <= most_quick_pattern)
    quick = compile(bytes, options, PCRE2_JIT_COMPLETE | PCRE2_JIT_PARTIAL_HARD, pattern, source);
  compiled_ = std::make_unique<const Compiled>(
      Compiled{std::string(pattern), source, alphabet.table(), std::move(quick), std::move(counted)});
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

std::optional<RegularExpression::Compiled::Step> RegularExpression::Compiled::find_quickly(std::string_view subject,
                                                                                           std::size_t at,
                                                                                           Workspace& work) const {
  const std::size_t end = std::min(subject.size(), at + window);
  const bool cut = end < subject.size();
  const int result = match(quick, subject, end, at, cut ? PCRE2_PARTIAL_HARD : 0, work, work.quick);
  const PCRE2_SIZE* const found = pcre2_get_ovector_pointer(work.match.get());
  if (result >= 0 && !(cut && found[0] == end)) return Step{.match = Match{found[0], found[1]}};
  if (result >= 0 || result == PCRE2_ERROR_NOMATCH) return Step{.match = {}, .next = cut ? end : end + 1};
  // The match that begins at found[0] needs what is behind the window.
  if (result == PCRE2_ERROR_PARTIAL && found[0] > at) return Step{.match = {}, .next = found[0]};
  return std::nullopt;
}

RegularExpression::Compiled::Step RegularExpression::Compiled::find_counted(std::string_view subject, std::size_t at,
                                                                            Workspace& work, Budget& budget) const {
  work.count = {.steps = 0, .most = budget.left(), .place = at};
  pcre2_set_offset_limit(work.counted.get(), at + window);
  const int result = match(counted, subject, subject.size(), at, 0, work, work.counted);
  budget.spend(work.count.steps);
  const PCRE2_SIZE* const found = pcre2_get_ovector_pointer(work.match.get());
  if (result >= 0) return {.match = Match{found[0], found[1]}};
  require<InputError>(result == PCRE2_ERROR_NOMATCH, source, ": the regular expression \"", shortened(pattern),
                      "\" needs too much memory on a text of ", subject.size(), " characters");
  return {.match = {}, .next = at + window + 1};
}

std::optional<Match> RegularExpression::Compiled::find(std::string_view subject, std::size_t at, Workspace& work,
                                                       Budget& budget) const {
  while (at <= subject.size()) {
    std::optional<Step> step;
    if (quick.code) step = find_quickly(subject, at, work);
    if (!step) step = find_counted(subject, at, work, budget);
    if (step->match) return step->match;
    at = step->next;
  }
  return std::nullopt;
}

void RegularExpression::find_all(std::string_view text, std::vector<Match>& matches, Budget& budget) const {
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

  std::size_t at = 0;
  bool after_match = false;  // a match ended at `at`
  while (const std::optional<Match> found = compiled_->find(subject, at, work, budget)) {
    if (found->begin == found->end && after_match && found->begin == at) {
      ++at;
      after_match = false;
      continue;
    }
    at = found->end;
    after_match = true;
    matches.push_back(ascii ? *found : Match{work.places[found->begin], work.places[found->end]});
  }
}

}  // namespace fsdp::text
