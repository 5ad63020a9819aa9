// SPDX-License-Identifier: Apache-2.0
#include "pattern_alphabet.hpp"

#include <algorithm>
#include <utility>

#include <tessera/fsdp/core/error.hpp>

#include "../../fsdp/core/strings.hpp"

namespace fsdp::text {

/// Visits the intervals of ranges. Only the first range may begin before the first interval.
template <class Visit>
void PatternAlphabet::each(const std::vector<CodePointRange>& ranges, const Visit& visit) const {
  for (const CodePointRange& range : ranges) {
    const auto first = std::lower_bound(borders_.begin(), borders_.end(), range.begin);
    for (auto i = static_cast<std::size_t>(first - borders_.begin()); i < symbols_.size() && borders_[i] < range.end;
         ++i)
      visit(i);
  }
}

/// Splits each symbol that has some intervals inside a set and some outside. Returns the new number of symbols.
std::size_t PatternAlphabet::split(const std::vector<CodePointRange>& set, Members& members, std::size_t count,
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

PatternAlphabet::PatternAlphabet(const std::vector<PatternPart>& parts, const std::string& source) {
  std::vector<std::vector<CodePointRange>> sets;  // distinct sets, without ASCII
  borders_ = {0x80, code_point_end};
  for (const PatternPart& part : parts) {
    std::vector<CodePointRange> set;
    for (const CodePointRange& range : part.set.ranges())
      if (range.end > 0x80) set.push_back({std::max<char32_t>(range.begin, 0x80), range.end});
    if (!set.empty()) sets.push_back(std::move(set));
  }
  std::ranges::sort(sets);
  sets.erase(std::unique(sets.begin(), sets.end()), sets.end());
  for (const auto& set : sets)
    for (const CodePointRange& range : set) borders_.insert(borders_.end(), {range.begin, range.end});
  std::sort(borders_.begin(), borders_.end());
  borders_.erase(std::unique(borders_.begin(), borders_.end()), borders_.end());
  symbols_.resize(borders_.size() - 1);
  std::array<std::size_t, symbols_beyond_ascii> members{symbols_.size()};  // number of intervals of each symbol
  std::size_t count = 1;
  for (const auto& set : sets) count = split(set, members, count, source);
}

std::string PatternAlphabet::text_of(const CodePointSet& set) const {
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

CodePointTable PatternAlphabet::table() const {
  return CodePointTable([&](std::vector<std::uint8_t>& symbols) {
    for (std::size_t i = 0; i < symbols_.size(); ++i)
      std::fill(symbols.begin() + borders_[i], symbols.begin() + borders_[i + 1], symbols_[i]);
  });
}

}  // namespace fsdp::text
