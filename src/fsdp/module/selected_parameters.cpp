// SPDX-License-Identifier: Apache-2.0
// The parameters that the patterns of strategies and precisions select.
#include <algorithm>
#include <iterator>
#include <map>
#include <set>
#include <string_view>

#include <tessera/fsdp/core/error.hpp>
#include <tessera/fsdp/core/terminal_text.hpp>

#include "../core/strings.hpp"
#include "unit_groups.hpp"

namespace fsdp {
namespace {

using UnitLists = std::span<const Unit>;

/// Throws InputError for an alternative of a pattern that selects nothing.
void check_alternatives(const TensorPattern& pattern, UnitLists units, const char* what) {
  const auto selects = [&](const TensorPattern& one) {
    return std::ranges::any_of(units, [&](const Unit& unit) {
      return std::ranges::any_of(unit.parameters, [&](const auto& own) { return one.matches(unit.name, own); });
    });
  };
  for (const std::string_view names : split_at(pattern.names, '|')) {
    TensorPattern one = pattern;
    one.names = names;
    if (selects(one)) continue;
    std::vector<std::string> known;
    for (const Unit& unit : units) known.push_back(unit.name);
    std::ranges::copy(parameter_names(units), std::back_inserter(known));
    throw InputError(message(what, one == pattern ? "" : message("'", names, "' of "), "the pattern '", pattern.text(),
                             "' matches no tensor; ",
                             selects({.names = one.names}) ? "there are such names, but of other roles or sizes"
                                                           : suggestion(names, known)));
  }
}

/// Returns, for each parameter of each unit, the index of the pattern that selects it in any unit that has it; the
/// number of patterns if none does. Throws InputError for a pattern, or an alternative of one, that selects nothing,
/// and for a parameter that several patterns select.
std::vector<std::vector<std::size_t>> indices_of(const std::vector<TensorPattern>& patterns, UnitLists units,
                                                 const char* what) {
  std::map<std::string_view, std::size_t> found;
  for (const Unit& unit : units)
    for (const Parameter& parameter : unit.parameters) {
      const std::size_t index = index_of(patterns, unit.name, parameter, what);
      std::size_t& known = found.try_emplace(parameter.name, index).first->second;
      if (index != known && index < patterns.size() && known < patterns.size())
        throw InputError(message(what, "'", parameter.name, "', which several units share, matches both '",
                                 patterns[known].text(), "' and '", patterns[index].text(),
                                 "'; a tensor may match one pattern"));
      known = std::min(known, index);
    }
  for (const TensorPattern& pattern : patterns) check_alternatives(pattern, units, what);
  std::vector<std::vector<std::size_t>> list;
  for (const Unit& unit : units) {
    list.emplace_back();
    for (const Parameter& parameter : unit.parameters) list.back().push_back(found.at(parameter.name));
  }
  return list;
}

}  // namespace

std::vector<std::vector<std::size_t>> strategies_of(UnitLists units, std::span<const StrategyPart> parts,
                                                    const std::vector<std::string>& replicated) {
  std::vector<TensorPattern> patterns;
  for (const StrategyPart& part : parts.first(parts.size() - 1)) patterns.push_back(part.pattern);
  std::vector<std::vector<std::size_t>> strategies = indices_of(patterns, units, "sharding: ");
  for (std::size_t unit = 0; unit < units.size(); ++unit)
    for (std::size_t i = 0; i < strategies[unit].size(); ++i) {
      std::size_t& part = strategies[unit][i];
      const std::string& name = units[unit].parameters[i].name;
      require<InputError>(part == patterns.size() || !matches_any(replicated, name), "sharding: '", name, "' of ",
                          units[unit].name, " is replicated (UnitOptions::replicated, --replicate), and matches '",
                          parts[part].pattern.text(), "', which gives it the strategy '", parts[part].name,
                          "'; leave it out of one of them");
      part = parts[part].same_as;
    }
  return strategies;
}

std::vector<std::vector<bool>> floats_of(UnitLists units, const FloatWeights& floats) {
  require<InputError>(floats.patterns.size() == floats.is_float.size(), "precision: ", floats.patterns.size(),
                      " patterns and ", floats.is_float.size(), " types; make the value by PrecisionBy{on(...), ...}");
  std::vector<std::vector<bool>> list;
  for (const auto& unit : indices_of(floats.patterns, units, "precision: ")) {
    auto& own = list.emplace_back();
    for (const std::size_t pattern : unit) own.push_back(pattern < floats.patterns.size() && floats.is_float[pattern]);
  }
  return list;
}

void require_float_weights(std::span<const Unit> units, const FloatWeights& floats) {
  std::set<std::string> possible;
  for (const Unit& unit : units)
    for (const Parameter& parameter : unit.parameters)
      if (parameter.may_be_float) possible.insert(parameter.name);
  const auto selected = floats_of(units, floats);
  for (std::size_t unit = 0; unit < units.size(); ++unit)
    for (std::size_t i = 0; i < selected[unit].size(); ++i) {
      const Parameter& parameter = units[unit].parameters[i];
      if (parameter.may_be_float || !selected[unit][i]) continue;
      throw InputError(message(
          "precision: '", parameter.name, "' of ", units[unit].name,
          " is selected to be float, and its module computes with it in 16 bits; ",
          possible.empty() ? "no weight of this model can be float"
                           : message("weights that can be float are '", *possible.begin(), "' and ",
                                     possible.size() - 1, " others: norms, the embedding's table and the head")));
    }
}

}  // namespace fsdp
