// SPDX-License-Identifier: Apache-2.0
#include <tessera/fsdp/module/module_plan.hpp>

#include <utility>

#include <tessera/fsdp/sharding/check.hpp>

namespace fsdp {
namespace {

sharding::Names names_of(const UnitGroups& groups) {
  sharding::Names names;
  for (const GroupedParameters& group : groups.groups) names.groups.push_back(group.name);
  const int units = static_cast<int>(groups.uses.size());
  for (int unit = 0; unit < units; ++unit) names.units.push_back(unit_name(unit, units));
  return names;
}

}  // namespace

ModulePlan::ModulePlan(UnitGroups groups, const sharding::Axes& axes, bool overlaps, bool keep_last_block)
    : names_(names_of(groups)), grouped_(std::move(groups.groups)), references_(std::move(groups.references)) {
  problem_ = {.units = std::move(groups.uses),
              .groups = {},
              .axes = axes,
              .overlap = overlaps,
              .keep_last_block = keep_last_block};
}

ModulePlan::~ModulePlan() = default;

void ModulePlan::add(const sharding::GroupFacts& facts) { problem_.groups.push_back(facts); }

void ModulePlan::place(Purpose purpose, int micro_batches,
                       FunctionRef<sharding::Schedule(const sharding::Problem&)> schedule_of) {
  using sharding::Pass;
  std::vector<Pass> passes{Pass::generate, Pass::generate_again};
  if (purpose == Purpose::train) passes = {Pass::train, Pass::evaluate};
  if (purpose == Purpose::evaluate) passes = {Pass::evaluate};
  first_backward_ = sharding::first_backward(problem_);
  for (const Pass pass : passes) {
    sharding::Problem problem = problem_;
    problem.pass = pass;
    if (pass == Pass::train) problem.micro_batches = micro_batches;
    sharding::Schedule& placed = schedules_[static_cast<std::size_t>(pass)];
    placed = sharding::checked_and_placed(schedule_of(problem), problem, names_);
    slots_ = largest(std::move(slots_), sharding::slot_sizes(placed, problem));
  }
}

}  // namespace fsdp
