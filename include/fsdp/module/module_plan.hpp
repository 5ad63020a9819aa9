// SPDX-License-Identifier: Apache-2.0
/// @file
/// The plan of a module, before it has memory: its groups, their names, and the schedules of its passes.
#pragma once

#include <array>
#include <cstddef>
#include <vector>

#include <tessera/fsdp/core/function_ref.hpp>
#include <tessera/fsdp/module/run_shape.hpp>
#include <tessera/fsdp/module/units.hpp>
#include <tessera/fsdp/sharding/place.hpp>
#include <tessera/fsdp/sharding/problem.hpp>
#include <tessera/fsdp/sharding/schedule.hpp>

namespace fsdp {

/// The stack-independent part of a ShardedModule: groups, names and schedules.
class ModulePlan {
 public:
  /// `axes` are those of groups that are not resident; `overlaps`: whether collectives overlap computation.
  ModulePlan(UnitGroups groups, const sharding::Axes& axes, bool overlaps, bool keep_last_block);
  ~ModulePlan();

  /// The groups of the model's parameters; the module moves the parameters out of them.
  std::vector<GroupedParameters>& grouped() { return grouped_; }
  /// Adds the next group's facts.
  void add(const sharding::GroupFacts& facts);
  /// Makes and places the schedules of all passes of a purpose. Call it after the last `add`. Throws InputError for a
  /// schedule that the executor could not run.
  void place(Purpose purpose, int micro_batches, FunctionRef<sharding::Schedule(const sharding::Problem&)> schedule_of);

  /// See the functions of the same name in ShardedModule.
  /// @{
  const sharding::Problem& problem() const { return problem_; }
  const sharding::Names& names() const { return names_; }
  const std::vector<Reference>& references(int unit) const { return references_[static_cast<std::size_t>(unit)]; }
  int first_backward() const { return first_backward_; }
  /// @}
  /// The placed schedules, by pass, and the sizes of slots that are large enough for all of them.
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
