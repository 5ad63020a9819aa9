// SPDX-License-Identifier: Apache-2.0
#include <tessera/fsdp/module/units.hpp>

#include <algorithm>
#include <cmath>
#include <cstddef>
#include <iterator>
#include <map>
#include <numeric>
#include <set>
#include <string_view>

#include <fnmatch.h>

#include <tessera/fsdp/core/checked.hpp>
#include <tessera/fsdp/core/error.hpp>
#include <tessera/fsdp/core/terminal_text.hpp>

#include "set_by_groups.hpp"

namespace fsdp {

bool matches_any(const std::vector<std::string>& patterns, const std::string& name) {
  return std::any_of(patterns.begin(), patterns.end(),
                     [&](const std::string& pattern) { return ::fnmatch(pattern.c_str(), name.c_str(), 0) == 0; });
}

std::vector<int> offloaded_blocks(double share, int blocks) {
  constexpr double rounding = 1e-9;  // tolerance for a share given as a decimal number
  const int asked = share > 0 ? std::max(static_cast<int>(std::ceil(share * blocks - rounding)), 1) : 0;
  const int count = std::min(asked, blocks - 1);
  std::vector<int> list;
  for (std::int64_t i = 0; i < count; ++i) list.push_back(static_cast<int>(i * blocks / count));
  return list;
}

Unit unit_of(std::string name, std::span<const Field> fields, std::string_view prefix, bool backward_needs_weights) {
  Unit unit{.name = std::move(name), .parameters = {}, .backward_needs_weights = backward_needs_weights};
  for (int number = 0; const Field& field : fields) {
    if (!field.present())
      unit.absent.push_back(number);
    else
      unit.parameters.push_back({field.name[0] == '/' ? std::string(field.name + 1) : std::string(prefix) + field.name,
                                 field.shape, field.initial, field.role, field.decays, field.joins_previous,
                                 field.adapter, field.may_be_float, field.block});
    ++number;
  }
  return unit;
}

std::vector<Parameter> distinct_parameters(std::span<const Unit> units) {
  std::vector<Parameter> list;
  std::set<std::string> seen;
  for (const Unit& unit : units)
    for (const Parameter& parameter : unit.parameters)
      if (seen.insert(parameter.name).second) list.push_back(parameter);
  return list;
}

std::int64_t distinct_elements(std::span<const Unit> units) {
  std::int64_t count = 0;
  for (const Parameter& parameter : distinct_parameters(units)) count = checked_add(count, parameter.shape.numel());
  return count;
}

namespace {

using UnitLists = std::span<const Unit>;

void check_patterns(const std::vector<std::string>& patterns, UnitLists units, const char* what) {
  std::vector<std::string> names;
  for (const Unit& unit : units)
    for (const Parameter& parameter : unit.parameters) names.push_back(parameter.name);
  for (const std::string& pattern : patterns)
    require<InputError>(
        std::any_of(names.begin(), names.end(), [&](const std::string& name) { return matches_any({pattern}, name); }),
        what, " '", pattern, "' matches no parameter of the model; ", suggestion(pattern, names));
}

/// Returns, for each parameter of each unit, the index of the pattern that selects it in any unit that has it; the
/// number of patterns if none does. Throws InputError for a pattern that selects nothing, and for a parameter that
/// several patterns select.
std::vector<std::vector<std::size_t>> indices_of(const std::vector<TensorPattern>& patterns, UnitLists units,
                                                 const char* what) {
  std::map<std::string_view, std::size_t> found;
  std::vector<bool> used(patterns.size() + 1);
  for (const Unit& unit : units)
    for (const Parameter& parameter : unit.parameters) {
      const std::size_t index = index_of(patterns, unit.name, parameter, what);
      std::size_t& known = found.try_emplace(parameter.name, index).first->second;
      if (index != known && index < patterns.size() && known < patterns.size())
        throw InputError(message(what, "'", parameter.name, "', which several units share, matches both '",
                                 patterns[known].text(), "' and '", patterns[index].text(),
                                 "'; a tensor may match one pattern"));
      known = std::min(known, index);
      used[index] = true;
    }
  for (std::size_t i = 0; i < patterns.size(); ++i) {
    if (used[i]) continue;
    std::vector<std::string> names;
    for (const Unit& unit : units) names.push_back(unit.name);
    for (const Parameter& parameter : distinct_parameters(units)) names.push_back(parameter.name);
    throw InputError(message(what, "the pattern '", patterns[i].text(), "' matches no tensor; ",
                             suggestion(patterns[i].names, names)));
  }
  std::vector<std::vector<std::size_t>> list;
  for (const Unit& unit : units) {
    list.emplace_back();
    for (const Parameter& parameter : unit.parameters) list.back().push_back(found.at(parameter.name));
  }
  return list;
}

std::int64_t elements_of(const std::vector<Parameter>& parameters) {
  std::int64_t sum = 0;
  for (const Parameter& parameter : parameters) sum += parameter.shape.numel();
  return sum;
}

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
    const bool alike = unit > 0 && units[unit].gathered && units[unit - 1].gathered;
    if (!alike || !(joins_blocks || joins_small)) sizes.push_back(0);
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
  std::string shared;
  bool replicated = false, frozen = false, persistent = false, gathered = true, is_float = false;
  bool joined = false;  ///< small float tensors of consecutive blocks
  std::size_t strategy = 0;
  friend auto operator<=>(const Key&, const Key&) = default;
};

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

/// Returns the index of the strategy of every parameter of every unit. Throws InputError for a pattern that selects
/// nothing, and for a parameter that several patterns select.
std::vector<std::vector<std::size_t>> strategies_of(UnitLists units, std::span<const StrategyPart> parts) {
  std::vector<TensorPattern> patterns;
  for (std::size_t i = 0; i + 1 < parts.size(); ++i) patterns.push_back(parts[i].pattern);
  std::vector<std::vector<std::size_t>> strategies = indices_of(patterns, units, "sharding: ");
  for (auto& unit : strategies)
    for (std::size_t& part : unit) part = parts[part].same_as;
  return strategies;
}

/// Returns whether every parameter of every unit is float next to 16-bit weights. Throws as strategies_of does.
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

/// Returns the key of every parameter of every unit.
std::vector<std::vector<Key>> keys_of(UnitLists units, const UnitOptions& options, const SetByGroups& by_groups,
                                      std::span<const StrategyPart> parts, bool keeps_joined) {
  const std::vector<int> together = gathered_with(units, options);
  const bool adapts = std::any_of(units.begin(), units.end(), [](const Unit& unit) {
    return std::any_of(unit.parameters.begin(), unit.parameters.end(), [](const auto& own) { return own.adapter; });
  });
  std::map<std::string, std::vector<int>> users;
  for (std::size_t unit = 0; unit < units.size(); ++unit)
    for (const Parameter& parameter : units[unit].parameters) users[parameter.name].push_back(together[unit]);
  const auto strategies = strategies_of(units, parts);
  const auto floats = floats_of(units, options.precision);
  for (std::size_t unit = 0; keeps_joined && unit < units.size(); ++unit)
    for (std::size_t i = 1; i < strategies[unit].size(); ++i)
      require<InputError>(
          !units[unit].parameters[i].joins_previous ||
              (strategies[unit][i] == strategies[unit][i - 1] && floats[unit][i] == floats[unit][i - 1]),
          "sharding: '", units[unit].parameters[i].name, "' of ", units[unit].name,
          " has another strategy or precision than the tensor before it, with which one matmul uses it, "
          "so that results with pieces would depend on the patterns; select both or neither");
  std::vector<std::vector<Key>> keys(units.size());
  std::map<Key, std::int64_t> sizes;
  int first_block = -1;  // of the consecutive blocks that end with `unit`
  for (std::size_t unit = 0; unit < units.size(); ++unit) {
    const bool block = unit > 0 && unit + 1 < units.size() && units[unit].gathered;
    first_block = !block ? -1 : first_block < 0 ? together[unit] : first_block;
    std::vector<std::int64_t> thresholds;
    for (const std::size_t part : strategies[unit]) thresholds.push_back(parts[part].facts.persistence_threshold);
    const std::vector<bool> persistent = persistent_in(units[unit].parameters, thresholds, keeps_joined);
    for (std::size_t i = 0; i < persistent.size(); ++i) {
      const Parameter& parameter = units[unit].parameters[i];
      const auto& using_it = users[parameter.name];
      const bool shared = using_it.front() != using_it.back();
      const bool joined = block && !shared && floats[unit][i] && parameter.shape.numel() <= options.join_float_below;
      Key key{.part = shared   ? Part::shared
                      : joined ? Part::rest
                               : Part::most,
              .unit = shared   ? 0
                      : joined ? first_block
                               : together[unit],
              .shared = shared ? parameter.name : std::string(),
              .replicated = matches_any(options.replicated, parameter.name),
              .frozen = (adapts && !parameter.adapter) || matches_any(options.frozen, parameter.name) ||
                        by_groups.freezes(parameter.name),
              .persistent = persistent[i],
              .gathered = units[unit].gathered,
              .is_float = floats[unit][i],
              .joined = joined,
              .strategy = strategies[unit][i]};
      if (key.replicated || !key.gathered) key.persistent = false;
      sizes[key] += parameter.shape.numel();
      keys[unit].push_back(std::move(key));
    }
  }
  // A unit's largest part stays Part::most; its other parts come after all units.
  std::map<int, Key> largest;
  for (const auto& [key, size] : sizes) {
    if (key.part != Part::most) continue;
    const auto [place, inserted] = largest.try_emplace(key.unit, key);
    if (!inserted && size > sizes.at(place->second)) place->second = key;
  }
  for (auto& unit : keys)
    for (Key& key : unit)
      if (key.part == Part::most && key != largest.at(key.unit)) key.part = Part::rest;
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
  return name + (key.frozen ? ", frozen" : "") + (key.replicated ? ", replicated" : "") +
         (key.persistent ? ", persistent" : "") + (key.is_float ? ", fp32" : "") +
         (part.name.empty() ? "" : ", " + part.name);
}

/// Throws InputError for absent fields that the unit does not have.
void check_fields(const Unit& unit) {
  const std::size_t fields = unit.parameters.size() + unit.absent.size();
  for (int next = 0; const int field : unit.absent) {
    require<InputError>(field >= next && static_cast<std::size_t>(field) < fields, "units: ", unit.name,
                        " lists field ", field, " as absent; its fields are numbered from 0 to ", fields - 1,
                        ", parameters and absent ones together, and absent ones are listed in ascending order");
    next = field + 1;
  }
}

/// Throws InputError for units that cannot be sharded: a unit or a tensor without a name, or tensors of different
/// shapes with the same name.
void check(UnitLists units) {
  require<InputError>(!units.empty(), "units: there are none; give each part that computes a unit with its tensors");
  std::map<std::string, std::pair<Shape, bool>> seen;
  for (std::size_t number = 0; number < units.size(); ++number) {
    const Unit& unit = units[number];
    require<InputError>(!unit.name.empty(), "units: unit ", number, " has no name");
    check_fields(unit);
    std::set<std::string_view> names;
    for (const Parameter& parameter : unit.parameters) {
      require_tensor_name(parameter.name, "units: " + unit.name);
      require<InputError>(names.insert(parameter.name).second, "units: parameter '", parameter.name, "' is twice in ",
                          unit.name);
      check_shape(message("units: parameter '", parameter.name, "' of ", unit.name), parameter.shape);
      const Shape& shape = parameter.shape;
      require<InputError>(parameter.block == 0 || (parameter.block > 0 && shape.numel() % parameter.block == 0),
                          "units: parameter '", parameter.name, "' of ", unit.name, " has ", shape.numel(),
                          " elements, and its block of ", parameter.block,
                          " does not divide them; give a block that does, or 0 for none");
      const auto [place, inserted] = seen.try_emplace(parameter.name, shape, unit.gathered);
      require<InputError>(inserted || place->second.first == shape, "units: parameter '", parameter.name, "' of ",
                          unit.name,
                          " has another shape than the one of that name before it; a name is one tensor, "
                          "which units may share");
      require<InputError>(place->second.second == unit.gathered, "units: parameter '", parameter.name, "' is in units ",
                          "that are gathered and in units that are not");
    }
  }
}

void check(const UnitOptions& options, UnitLists units) {
  require<InputError>(options.blocks_per_unit > 0, "units: ", options.blocks_per_unit,
                      " blocks make no unit; give at least 1");
  require<InputError>(options.merge_below >= 0, "units: merge_below is ", options.merge_below,
                      " elements; give 0 to merge nothing");
  require<InputError>(options.join_float_below >= 0, "units: join_float_below is ", options.join_float_below,
                      " elements; give 0 to join nothing");
  require<InputError>(options.offload_inputs >= 0 && options.offload_inputs <= 1, "units: a share of ",
                      options.offload_inputs, " of the blocks' inputs in host memory; give 0 to 1");
  require<InputError>(options.recompute || options.offload_inputs == 0,
                      "units: inputs in host memory are all that blocks may save; recompute the rest as well");
  check_patterns(options.replicated, units, "units: replicated pattern");
  check_patterns(options.frozen, units, "units: frozen pattern");
}

}  // namespace

void check_shape(std::string_view what, const Shape& shape) {
  // The limit is low enough that byte counts summed over a few tensors do not overflow either.
  constexpr std::int64_t most = std::int64_t{1} << 56;
  std::int64_t elements = 1;
  require<InputError>(shape.rank >= 0 && shape.rank <= std::ssize(shape.extents), what, " has ", shape.rank,
                      " axes; a shape has 0 to ", shape.extents.size());
  for (std::int64_t axis = 0; axis < shape.rank; ++axis) {
    require<InputError>(shape[axis] >= 0, what, " has extent ", shape[axis], " on axis ", axis,
                        "; extents are at least 0");
    require<InputError>(!__builtin_mul_overflow(elements, shape[axis], &elements) && elements <= most, what,
                        " has more than 2^56 elements, which no memory holds");
  }
}

std::int64_t GroupedParameters::elements() const { return elements_of(parameters); }

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
    result.groups.push_back({.name = {},
                             .parameters = {},
                             .replicated = key.replicated,
                             .frozen = key.frozen,
                             .persistent = key.persistent,
                             .gathered = key.gathered,
                             .part = key.strategy,
                             .is_float = key.is_float});
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
      if (!keys[unit][i].frozen) trained.insert(parameter.name);
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
    const StrategyPart& part = parts[key.strategy];
    const bool is_usual = key.strategy == parts.back().same_as;
    result.groups[group].name = group_name(key, users[group], units, is_usual ? StrategyPart{} : part);
  }
  return result;
}

UnitGroups group_parameters(UnitLists units, const UnitOptions& options) {
  return group_parameters(units, options, std::vector<StrategyPart>(1));
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

std::int64_t trained_elements(std::span<const Unit> units, const UnitOptions& options) {
  std::int64_t count = 0;
  for (const GroupedParameters& group : group_parameters(units, options).groups)
    if (!group.frozen) count = checked_add(count, group.elements());
  return count;
}

sharding::GroupFacts facts_of(const GroupedParameters& group, const StrategyPart& part, const sharding::Axes& axes) {
  using sharding::Across;
  const bool resident = group.replicated || part.facts.whole_at_rest;
  // A resident group's own reduction covers all ranks, and so do the shards of a group that is never gathered.
  const bool crosses = group.gathered && (!resident || part.facts.across != Across::all_reduce);
  return {.resident = resident,
          .gathered = group.gathered,
          .persistent = group.persistent,
          .across = crosses ? part.facts.across : Across::nothing,
          .trainable = !group.frozen,
          .elements = group.elements(),
          .axes = axes,
          .hold = sharding::hold_of(part.rules, axes),
          .reduce_every_micro_batch = part.rules.reduce_every_micro_batch};
}

Order mirrored(std::span<const int> uses, std::optional<int> head) {
  Order order;
  for (const int unit : uses) order.list.push_back({sharding::Action::forward, unit});
  if (head) order.list.push_back({sharding::Action::loss, *head});
  for (auto use = uses.rbegin(); use != uses.rend(); ++use) order.list.push_back({sharding::Action::backward, *use});
  return order;
}

Order mirrored(std::initializer_list<int> uses, std::optional<int> head) {
  return mirrored(std::span(uses.begin(), uses.size()), head);
}

Order chain(int units) {
  require<InputError>(units >= 0, "order: a chain of ", units, " units; give at least 0");
  std::vector<int> uses(static_cast<std::size_t>(units));
  std::iota(uses.begin(), uses.end(), 0);
  return mirrored(uses);
}

}  // namespace fsdp
