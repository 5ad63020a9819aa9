// SPDX-License-Identifier: Apache-2.0
#include "set_by_groups.hpp"

#include <algorithm>
#include <optional>

#include <tessera/fsdp/core/checked.hpp>
#include <tessera/fsdp/core/error.hpp>
#include <tessera/fsdp/core/terminal_text.hpp>

#include "unit_groups.hpp"

namespace fsdp {

std::string OptimizerGroup::selection() const {
  return message("'", parameters, "'", units == "*" ? "" : message(" of units '", units, "'"),
                 role ? message(" of role ", name_of(*role)) : "");
}

void OptimizerGroup::check() const {
  const auto sets = [&](const GroupNumber& number) { return (this->*number.value).has_value(); };
  for (const GroupNumber& number : group_numbers) {
    if (!sets(number)) continue;
    const double value = *(this->*number.value);
    require<InputError>(is_finite(value) && value >= 0 && value <= number.most, "group ", selection(), ": ",
                        number.name, " is ", value, "; give at least 0 and at most ", number.most);
    require<InputError>(!frozen, "group ", selection(), ": ", number.name,
                        " has no effect on frozen parameters; leave one of them out");
  }
  require<InputError>(frozen || std::ranges::any_of(group_numbers, sets), "group ", selection(),
                      " sets nothing; give it lr, weight-decay, clip or frozen");
}

std::vector<Parameter> parameters_of(const OptimizerGroup& group, std::span<const Unit> units) {
  std::vector<Parameter> list;
  std::set<std::string> seen;
  for (const Unit& unit : units) {
    if (!matches_any({group.units}, unit.name)) continue;
    for (const Parameter& parameter : unit.parameters)
      if ((!group.role || *group.role == parameter.role) && matches_any({group.parameters}, parameter.name) &&
          seen.insert(parameter.name).second)
        list.push_back(parameter);
  }
  return list;
}

namespace {

bool selects_alike(const OptimizerGroup& a, const OptimizerGroup& b) {
  return a.parameters == b.parameters && a.units == b.units && a.role == b.role;
}

/// Returns the end of the message about a group that matches nothing.
std::string nearest_match(const OptimizerGroup& group, std::span<const Unit> units) {
  std::vector<std::string> unit_names;
  for (const Unit& unit : units) unit_names.push_back(unit.name);
  if (group.parameters != "*" && !parameters_of({.parameters = group.parameters}, units).empty())
    return "there are such names, but of other roles or units";
  if (group.parameters != "*") return suggestion(group.parameters, parameter_names(units));
  return group.units != "*" ? suggestion(group.units, unit_names) : "leave it out";
}

/// Throws InputError if two groups of a parameter contradict each other.
void require_agreement(const OptimizerGroup& a, const OptimizerGroup& b, const std::string& parameter) {
  for (const GroupNumber& number : group_numbers) {
    const std::optional<double>&one = a.*number.value, &other = b.*number.value;
    if (!one || !other) continue;
    require<InputError>(*one == *other, "groups ", a.selection(), " and ", b.selection(), " give parameter '",
                        parameter, "' different values: ", number.name, " ", *one, " and ", *other,
                        "; let one of them have it");
    require<InputError>(number.value != &OptimizerGroup::clip, "groups ", a.selection(), " and ", b.selection(),
                        " both clip parameter '", parameter, "'; let one of them have it");
  }
}

}  // namespace

SetByGroups::SetByGroups(std::span<const Unit> units, const std::vector<OptimizerGroup>& groups) : groups_(groups) {
  int clip_groups = 0;
  for (const OptimizerGroup& group : groups) {
    group.check();
    const auto alike = std::ranges::count_if(groups, [&](const auto& other) { return selects_alike(other, group); });
    require<InputError>(alike == 1, "group ", group.selection(), " is listed twice; put its values into one");
    const std::vector<Parameter> own = parameters_of(group, units);
    require<InputError>(!own.empty(), "group ", group.selection(), " matches no parameter of the model; ",
                        nearest_match(group, units));
    if (group.clip) ++clip_groups;
    for (const Parameter& parameter : own) add(parameter.name, group, clip_groups);
  }
}

void SetByGroups::add(const std::string& name, const OptimizerGroup& group, int clip_group) {
  Member& member = members_[name];
  for (const OptimizerGroup* const other : member.groups) require_agreement(*other, group, name);
  member.groups.push_back(&group);
  member.frozen = member.frozen || group.frozen;
  if (group.lr) member.step.lr = *group.lr;
  if (group.weight_decay) member.step.weight_decay = group.weight_decay;
  if (!group.clip) return;
  member.step.clip = *group.clip;
  member.step.clip_group = clip_group;
}

bool SetByGroups::freezes(const std::string& name) const {
  const auto found = members_.find(name);
  return found != members_.end() && found->second.frozen;
}

void SetByGroups::set(Parameter& parameter) const {
  const auto found = members_.find(parameter.name);
  parameter.step = found == members_.end() ? StepOptions() : found->second.step;
  if (parameter.step.weight_decay) parameter.decays = *parameter.step.weight_decay != 0;
}

void SetByGroups::require_trained(const std::set<std::string, std::less<>>& trained) const {
  for (const OptimizerGroup& group : groups_) {
    const auto trains = [&](const auto& entry) {
      return trained.contains(entry.first) && std::ranges::count(entry.second.groups, &group) > 0;
    };
    require<InputError>(group.frozen || std::ranges::any_of(members_, trains), "group ", group.selection(),
                        " has frozen parameters alone, which no step changes; leave it out");
  }
}

}  // namespace fsdp
