// SPDX-License-Identifier: Apache-2.0
/// @file
/// What a module is before it has memory: its groups, their names, and the schedules of its passes.
#pragma once

#include <array>
#include <cstddef>
#include <vector>

#include <fsdp/core/function_ref.hpp>
#include <fsdp/module/run_shape.hpp>
#include <fsdp/module/units.hpp>
#include <fsdp/sharding/place.hpp>
#include <fsdp/sharding/problem.hpp>
#include <fsdp/sharding/schedule.hpp>

namespace fsdp {

/// Knows no type of a stack.
class ModulePlan {
 public:
  /// `axes` are those of groups that are not resident; `overlaps`: collectives run beside computation.
  ModulePlan(UnitGroups groups, const sharding::Axes& axes, bool overlaps, bool keep_last_block);
  ~ModulePlan();

  /// What the model's units were grouped into; a module takes the parameters out.
  std::vector<GroupedParameters>& grouped() { return grouped_; }
  /// The next group's facts.
  void add(const sharding::GroupFacts& facts);
  /// Makes the lists of all passes that a purpose has, once all groups are there. Throws InputError for a list that the
  /// executor could not run.
  void place(Purpose purpose, int micro_batches, FunctionRef<sharding::Schedule(const sharding::Problem&)> schedule_of);

  /// As ShardedModule says.
  /// @{
  const sharding::Problem& problem() const { return problem_; }
  const sharding::Names& names() const { return names_; }
  const std::vector<Reference>& references(int unit) const { return references_[static_cast<std::size_t>(unit)]; }
  int first_backward() const { return first_backward_; }
  /// @}
  /// The placed lists, by pass, and the slots that serve all of them.
  /// @{
  const std::array<sharding::Schedule, sharding::pass_count>& schedules() const { return schedules_; }
  const sharding::SlotSizes& slots() const { return slots_; }
  /// @}

 private:
  sharding::Problem problem_;
  sharding::Names names_;
  std::vector<GroupedParameters> grouped_;
  std::vector<std::vector<Reference>> references_;
  std::array<sharding::Schedule, sharding::pass_count> schedules_;
  sharding::SlotSizes slots_;
  int first_backward_ = 0;
};

}  // namespace fsdp
