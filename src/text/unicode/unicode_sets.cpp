// SPDX-License-Identifier: Apache-2.0
#include "unicode_sets.hpp"

#include <algorithm>
#include <charconv>
#include <map>
#include <string>
#include <utility>

#include <tessera/fsdp/core/error.hpp>

#include "../../fsdp/core/strings.hpp"

namespace fsdp::text {

CodePointSet::CodePointSet(std::vector<CodePointRange> ranges) {
  std::erase_if(ranges, [](const CodePointRange& range) { return range.begin >= range.end; });
  std::ranges::sort(ranges);
  for (const CodePointRange& range : ranges) {
    if (!ranges_.empty() && range.begin <= ranges_.back().end)
      ranges_.back().end = std::max(ranges_.back().end, range.end);
    else
      ranges_.push_back(range);
  }
}

bool CodePointSet::contains(char32_t code) const {
  const auto after = std::ranges::upper_bound(ranges_, code, {}, &CodePointRange::begin);
  return after != ranges_.begin() && code < std::prev(after)->end;
}

CodePointSet CodePointSet::operator|(const CodePointSet& other) const {
  std::vector<CodePointRange> all = ranges_;
  all.insert(all.end(), other.ranges_.begin(), other.ranges_.end());
  return CodePointSet(std::move(all));
}

CodePointSet CodePointSet::operator~() const {
  std::vector<CodePointRange> gaps;
  char32_t begin = 0;
  for (const CodePointRange& range : ranges_) {
    gaps.push_back({begin, range.begin});
    begin = range.end;
  }
  gaps.push_back({begin, code_point_end});
  return CodePointSet(std::move(gaps));
}

CodePointTable::CodePointTable(const std::function<void(std::vector<std::uint8_t>&)>& fill) {
  std::vector<std::uint8_t> all(code_point_end, 0);
  fill(all);
  std::map<std::string_view, std::uint32_t> known;
  for (std::size_t page = 0; page < all.size(); page += 256) {
    const std::string_view content(reinterpret_cast<const char*>(all.data() + page), 256);
    const auto [entry, is_new] = known.emplace(content, static_cast<std::uint32_t>(bytes_.size()));
    if (is_new)
      bytes_.insert(bytes_.end(), all.begin() + static_cast<std::ptrdiff_t>(page),
                    all.begin() + static_cast<std::ptrdiff_t>(page) + 256);
    pages_.push_back(entry->second);
  }
}

namespace {

using Ranges = std::vector<CodePointRange>;

CodePointSet read_runs(std::string_view runs) {
  Ranges ranges;
  bool inside = false;
  char32_t at = 0;
  for (const char *text = runs.data(), *end = text + runs.size(); text < end; ++text) {
    std::uint32_t length = 0;
    text = std::from_chars(text, end, length).ptr;
    if (inside) ranges.push_back({at, at + length});
    at += length;
    inside = !inside;
  }
  return CodePointSet(std::move(ranges));
}

using Categories = std::map<std::string, Ranges, std::less<>>;

Categories read_categories() {
  Categories categories;
  const std::string_view runs = category_runs;
  char32_t at = 0;
  for (std::size_t i = 0; i < runs.size();) {
    const std::string_view name = runs.substr(i, 2);
    i += 2;
    std::uint32_t length = 1;
    if (i < runs.size() && runs[i] >= '0' && runs[i] <= '9')
      i = static_cast<std::size_t>(std::from_chars(runs.data() + i, runs.data() + runs.size(), length).ptr -
                                   runs.data());
    categories[std::string(name)].push_back({at, at + length});
    at += length;
  }
  return categories;
}

/// Returns a property's name in lower case, without ignored characters.
std::string plain(std::string_view name) {
  std::string text;
  for (const char c : name)
    if (c != '_' && c != '-' && c != ' ') text += ascii_lower(c);
  return text;
}

/// Categories and groups of them, each with its long name.
constexpr std::string_view long_names =
    "L letter Lu uppercaseletter Ll lowercaseletter Lt titlecaseletter Lm modifierletter Lo otherletter "
    "M mark Mn nonspacingmark Mc spacingmark Me enclosingmark "
    "N number Nd decimalnumber Nl letternumber No othernumber "
    "P punctuation Pc connectorpunctuation Pd dashpunctuation Ps openpunctuation Pe closepunctuation "
    "Pi initialpunctuation Pf finalpunctuation Po otherpunctuation "
    "S symbol Sm mathsymbol Sc currencysymbol Sk modifiersymbol So othersymbol "
    "Z separator Zs spaceseparator Zl lineseparator Zp paragraphseparator "
    "C other Cc control Cf format Co privateuse";

}  // namespace

const CodePointSet& unicode_set(std::string_view name) {
  static const std::map<std::string_view, CodePointSet> sets = [] {
    std::map<std::string_view, CodePointSet> all;
    for (const UnicodeTable& table : unicode_tables) {
      CodePointSet set = read_runs(table.runs);
      if (*table.categories != '\0')
        for (const std::string_view category : split_at(table.categories, ' ')) set = set ^ *property_set(category);
      all.emplace(table.name, std::move(set));
    }
    return all;
  }();
  const auto found = sets.find(name);
  require(found != sets.end(), "unicode_set: there is no table \"", name, "\"");
  return found->second;
}

std::optional<CodePointSet> property_set(std::string_view name) {
  static const Categories categories = read_categories();
  std::string wanted = plain(name);
  for (const std::string_view script : {"han", "hiragana", "katakana", "hangul"})
    if (wanted == script) return unicode_set(script);
  const std::vector<std::string_view> names = split_at(long_names, ' ');
  for (std::size_t i = 0; i < names.size(); i += 2)
    if (wanted == names[i + 1]) wanted = plain(names[i]);
  Ranges ranges;
  for (const auto& [category, members] : categories)
    if (plain(category) == wanted || plain(category.substr(0, 1)) == wanted)
      ranges.insert(ranges.end(), members.begin(), members.end());
  if (ranges.empty()) return std::nullopt;
  return CodePointSet(std::move(ranges));
}

}  // namespace fsdp::text
