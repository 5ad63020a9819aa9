// SPDX-License-Identifier: Apache-2.0
#include <tessera/fsdp/module/units.hpp>

#include <algorithm>
#include <set>
#include <span>
#include <vector>

#include <tessera/fsdp/core/error.hpp>
#include <tessera/fsdp/core/finite.hpp>

#include "../core/value_names.hpp"

namespace fsdp {
namespace {

constexpr ValueNames<Role::vector> role_names("matrix", "table", "vector");

}  // namespace

std::string name_of(Role role) { return role_names.name(role); }

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

}  // namespace fsdp
