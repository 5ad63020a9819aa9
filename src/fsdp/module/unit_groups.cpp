// SPDX-License-Identifier: Apache-2.0
// The groups of the parameters of units.
#include <algorithm>
#include <map>
#include <set>

#include <tessera/fsdp/core/checked.hpp>
#include <tessera/fsdp/core/error.hpp>

#include "set_by_groups.hpp"
#include "unit_groups.hpp"

namespace fsdp {
namespace {

using UnitLists = std::span<const Unit>;

/// Returns, for each unit, the index of the merged unit to which it belongs: k blocks are merged, and small units are
/// merged with a neighbour.
std::vector<int> gathered_with(UnitLists units, const UnitOptions& options) {
  std::vector<int> first(units.size(), 0);
  std::vector<std::int64_t> sizes;
  const auto last = units.size() - 1;
  for (std::size_t unit = 0; unit <= last; ++unit) {
    const bool block = unit != 0 && unit != last;
    const bool joins_blocks = block && (unit - 1) % static_cast<std::size_t>(options.blocks_per_unit) != 0;
    const bool joins_small = unit > 0 && sizes.back() < options.merge_below;
    const bool neighbours = unit > 0 && units[unit].gathered && units[unit - 1].gathered;
    if (!neighbours || !(joins_blocks || joins_small)) sizes.push_back(0);
    first[unit] = static_cast<int>(sizes.size()) - 1;
    sizes.back() += elements_of(units[unit].parameters);
  }
  const bool last_joins = units.size() > 1 && units[last].gathered && units[last - 1].gathered;
  if (last_joins && sizes.size() > 1 && sizes.back() < options.merge_below)
    std::replace(first.begin(), first.end(), static_cast<int>(sizes.size()) - 1, static_cast<int>(sizes.size()) - 2);
  return first;
}

/// The content of a group; groups are sorted by it.
enum class Part : std::uint8_t {
  most,    ///< the largest part of a unit
  shared,  ///< a weight that units that are not adjacent share
  rest,    ///< the part of a unit that is treated differently from the largest part
};

/// The common properties of the tensors of a group. Keys are sorted like groups.
struct Key {
  Part part = Part::most;
  int unit = 0;
  std::string shared = {};
  GroupKind kind = {};
  bool joined = false;  ///< small float tensors of consecutive blocks
  friend auto operator<=>(const Key&, const Key&) = default;
};
using Keys = std::vector<std::vector<Key>>;  // [units][parameters]

/// Returns which parameters are persistent. With `keeps_joined`, parameters that join each other are persistent
/// together or not at all. `thresholds`: by parameter.
std::vector<bool> persistent_in(std::span<const Parameter> parameters, std::span<const std::int64_t> thresholds,
                                bool keeps_joined) {
  std::vector<bool> persistent;
  for (std::size_t begin = 0, end = 0; begin < parameters.size(); begin = end) {
    bool all = true;
    do all = all && parameters[end].shape.numel() <= thresholds[end];
    while (++end < parameters.size() && keeps_joined && parameters[end].joins_previous);
    persistent.resize(end, all);
  }
  return persistent;
}

/// Throws InputError if tensors that one matmul uses together have different strategies or precisions.
void require_joined_together(UnitLists units, const std::vector<std::vector<std::size_t>>& strategies,
                             const std::vector<std::vector<bool>>& floats) {
  for (std::size_t unit = 0; unit < units.size(); ++unit)
    for (std::size_t i = 1; i < strategies[unit].size(); ++i)
      require<InputError>(
          !units[unit].parameters[i].joins_previous ||
              (strategies[unit][i] == strategies[unit][i - 1] && floats[unit][i] == floats[unit][i - 1]),
          "sharding: '", units[unit].parameters[i].name, "' of ", units[unit].name,
          " has another strategy or precision than the tensor before it, with which one matmul uses it, "
          "so that results with pieces would depend on the patterns; select both or neither");
}

/// Changes Part::most of all parts of a unit except its largest: these come after all units.
void move_smaller_parts(Keys& keys, const std::map<Key, std::int64_t>& sizes) {
  std::map<int, Key> largest;
  for (const auto& [key, size] : sizes) {
    if (key.part != Part::most) continue;
    const auto [place, inserted] = largest.try_emplace(key.unit, key);
    if (!inserted && size > sizes.at(place->second)) place->second = key;
  }
  for (auto& unit : keys)
    for (Key& key : unit)
      if (key.part == Part::most && key != largest.at(key.unit)) key.part = Part::rest;
}

/// Returns the key of every parameter of every unit.
Keys keys_of(UnitLists units, const UnitOptions& options, const SetByGroups& by_groups,
             std::span<const StrategyPart> parts, bool keeps_joined) {
  const std::vector<int> together = gathered_with(units, options);
  bool adapts = false;
  std::map<std::string, std::vector<int>> users;
  for (std::size_t unit = 0; unit < units.size(); ++unit)
    for (const Parameter& parameter : units[unit].parameters) {
      adapts = adapts || parameter.adapter;
      users[parameter.name].push_back(together[unit]);
    }
  const auto strategies = strategies_of(units, parts, options.replicated);
  const auto floats = floats_of(units, options.precision);
  if (keeps_joined) require_joined_together(units, strategies, floats);
  Keys keys(units.size());
  std::map<Key, std::int64_t> sizes;
  int first_block = -1;  // of the consecutive blocks that end with `unit`
  for (std::size_t unit = 0; unit < units.size(); ++unit) {
    const bool block = unit > 0 && unit + 1 < units.size() && units[unit].gathered;
    first_block = !block ? -1 : first_block < 0 ? together[unit] : first_block;
    std::vector<std::int64_t> thresholds;
    for (const std::size_t part : strategies[unit]) thresholds.push_back(parts[part].rules.facts.persistence_threshold);
    const std::vector<bool> persistent = persistent_in(units[unit].parameters, thresholds, keeps_joined);
    for (std::size_t i = 0; i < persistent.size(); ++i) {
      const Parameter& parameter = units[unit].parameters[i];
      const auto& using_it = users[parameter.name];
      const bool replicated = matches_any(options.replicated, parameter.name);
      Key key{.unit = together[unit],
              .kind = {.replicated = replicated,
                       .frozen = (adapts && !parameter.adapter) || matches_any(options.frozen, parameter.name) ||
                                 by_groups.freezes(parameter.name),
                       .persistent = persistent[i] && !replicated && units[unit].gathered,
                       .gathered = units[unit].gathered,
                       .is_float = floats[unit][i],
                       .part = strategies[unit][i]}};
      if (using_it.front() != using_it.back()) {
        key = {.part = Part::shared, .shared = parameter.name, .kind = key.kind};
      } else if (block && floats[unit][i] && parameter.shape.numel() <= options.join_float_below) {
        key = {.part = Part::rest, .unit = first_block, .kind = key.kind, .joined = true};
      }
      sizes[key] += parameter.shape.numel();
      keys[unit].push_back(std::move(key));
    }
  }
  move_smaller_parts(keys, sizes);
  return keys;
}

/// Returns a group's name: "block 0", "block 0 and block 1", "block 0 to block 7, frozen", or a shared weight's own
/// name. `users`: the units that use it, in order; `part`: its strategy, whose name is added unless it is empty.
std::string group_name(const Key& key, const std::vector<std::size_t>& users, UnitLists units,
                       const StrategyPart& part) {
  std::string name = key.shared;
  if (key.part != Part::shared) {
    name = units[users.front()].name;
    if (users.size() > 1) name += (users.size() == 2 ? " and " : " to ") + units[users.back()].name;
  }
  return name + (key.kind.frozen ? ", frozen" : "") + (key.kind.replicated ? ", replicated" : "") +
         (key.kind.persistent ? ", persistent" : "") + (key.kind.is_float ? ", fp32" : "") +
         (part.name.empty() ? "" : ", " + part.name);
}

}  // namespace

UnitGroups group_parameters(UnitLists units, const UnitOptions& options, std::span<const StrategyPart> parts,
                            bool keeps_joined) {
  check(units);
  check(options, units);
  const SetByGroups by_groups(units, options.groups);
  const auto keys = keys_of(units, options, by_groups, parts, keeps_joined);
  std::map<Key, int> numbers;  // the index of each distinct key, in sorted order
  for (const std::vector<Key>& unit : keys)
    for (const Key& key : unit) numbers.emplace(key, 0);
  UnitGroups result;
  for (auto& [key, number] : numbers) {
    number = static_cast<int>(result.groups.size());
    result.groups.push_back({key.kind, {}, {}});
  }
  const auto& groups = result.groups;
  require<InputError>(!groups.empty(), "units: none of them has a tensor, so there is nothing to train");
  require<InputError>(!std::all_of(groups.begin(), groups.end(), [](const auto& group) { return group.frozen; }),
                      "units: every parameter is frozen, so there is nothing to train");

  std::map<std::string, Reference> seen;
  std::set<std::string, std::less<>> trained;
  for (std::size_t unit = 0; unit < units.size(); ++unit) {
    sharding::UnitUse& use = result.uses.emplace_back();
    use.backward_needs_weights = units[unit].backward_needs_weights;
    auto& references = result.references.emplace_back();
    for (std::size_t i = 0; i < units[unit].parameters.size(); ++i) {
      const Parameter& parameter = units[unit].parameters[i];
      const int number = numbers.at(keys[unit][i]);
      auto& members = result.groups[static_cast<std::size_t>(number)].parameters;
      const auto [place, inserted] =
          seen.try_emplace(parameter.name, Reference{.group = number, .index = static_cast<int>(members.size())});
      if (inserted) by_groups.set(members.emplace_back(parameter));
      if (!keys[unit][i].kind.frozen) trained.insert(parameter.name);
      references.push_back(place->second);
      if (std::ranges::count(use.groups, number) == 0) use.groups.push_back(number);
    }
    for (const int field : units[unit].absent) references.insert(references.begin() + field, Reference{-1, -1});
    // Sorted, a unit's largest part is gathered first and takes the slot that another unit's largest part left.
    // Otherwise a small part that stays gathered longer could occupy that slot.
    std::sort(use.groups.begin(), use.groups.end());
  }
  by_groups.require_trained(trained);
  std::vector<std::vector<std::size_t>> users(result.groups.size());
  for (std::size_t unit = 0; unit < units.size(); ++unit)
    for (const int group : result.uses[unit].groups) users[static_cast<std::size_t>(group)].push_back(unit);
  for (const auto& [key, number] : numbers) {
    const auto group = static_cast<std::size_t>(number);
    // Only parts that differ from the last one have their names in the names of groups.
    const StrategyPart& part = parts[key.kind.part];
    const bool is_usual = key.kind.part == parts.back().same_as;
    result.groups[group].name = group_name(key, users[group], units, is_usual ? StrategyPart{} : part);
  }
  return result;
}

UnitGroups group_parameters(UnitLists units, const UnitOptions& options) {
  return group_parameters(units, options, std::vector<StrategyPart>(1));
}

std::int64_t trained_elements(std::span<const Unit> units, const UnitOptions& options) {
  std::int64_t count = 0;
  for (const GroupedParameters& group : group_parameters(units, options).groups)
    if (!group.frozen) count = checked_add(count, group.elements());
  return count;
}

sharding::GroupFacts facts_of(const GroupedParameters& group, const StrategyPart& part, const sharding::Axes& axes) {
  using sharding::Across;
  const bool resident = group.replicated || part.rules.facts.whole_at_rest;
  // A resident group's own reduction covers all ranks, and so do the shards of a group that is never gathered.
  const bool crosses = group.gathered && (!resident || part.rules.facts.across != Across::all_reduce);
  return {.resident = resident,
          .gathered = group.gathered,
          .persistent = group.persistent,
          .across = crosses ? part.rules.facts.across : Across::nothing,
          .trainable = !group.frozen,
          .elements = group.elements(),
          .axes = axes,
          .hold = sharding::hold_of(part.rules, axes),
          .reduce_every_micro_batch = part.rules.reduce_every_micro_batch};
}

}  // namespace fsdp
