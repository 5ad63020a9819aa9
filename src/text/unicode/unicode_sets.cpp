// SPDX-License-Identifier: Apache-2.0
#include "unicode_sets.hpp"

#include <charconv>
#include <map>
#include <string>
#include <utility>
#include <vector>

#include <tessera/fsdp/core/error.hpp>

#include "../../fsdp/core/ascii.hpp"
#include "../../fsdp/core/split.hpp"
#include "unicode_tables.hpp"

namespace fsdp::text {
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

const std::map<std::string, std::string, std::less<>>& long_names() {
  static const std::map<std::string, std::string, std::less<>> names = {
      {"letter", "L"},
      {"uppercaseletter", "Lu"},
      {"lowercaseletter", "Ll"},
      {"titlecaseletter", "Lt"},
      {"modifierletter", "Lm"},
      {"otherletter", "Lo"},
      {"mark", "M"},
      {"nonspacingmark", "Mn"},
      {"spacingmark", "Mc"},
      {"enclosingmark", "Me"},
      {"number", "N"},
      {"decimalnumber", "Nd"},
      {"letternumber", "Nl"},
      {"othernumber", "No"},
      {"punctuation", "P"},
      {"connectorpunctuation", "Pc"},
      {"dashpunctuation", "Pd"},
      {"openpunctuation", "Ps"},
      {"closepunctuation", "Pe"},
      {"initialpunctuation", "Pi"},
      {"finalpunctuation", "Pf"},
      {"otherpunctuation", "Po"},
      {"symbol", "S"},
      {"mathsymbol", "Sm"},
      {"currencysymbol", "Sc"},
      {"modifiersymbol", "Sk"},
      {"othersymbol", "So"},
      {"separator", "Z"},
      {"spaceseparator", "Zs"},
      {"lineseparator", "Zl"},
      {"paragraphseparator", "Zp"},
      {"other", "C"},
      {"control", "Cc"},
      {"format", "Cf"},
      {"privateuse", "Co"},
  };
  return names;
}

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
  if (const auto found = long_names().find(wanted); found != long_names().end()) wanted = plain(found->second);
  Ranges ranges;
  for (const auto& [category, members] : categories)
    if (plain(category) == wanted || plain(category.substr(0, 1)) == wanted)
      ranges.insert(ranges.end(), members.begin(), members.end());
  if (ranges.empty()) return std::nullopt;
  return CodePointSet(std::move(ranges));
}

}  // namespace fsdp::text
