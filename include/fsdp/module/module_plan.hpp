// SPDX-License-Identifier: Apache-2.0
/// @file
/// The plan of a module, before it has memory: its groups, their names, and the schedules of its passes.
#pragma once

#include <cstddef>
#include <cstdint>
#include <functional>
#include <map>
#include <span>
#include <tuple>
#include <vector>

#include <tessera/comm/ranks.hpp>
#include <tessera/fsdp/module/order.hpp>
#include <tessera/fsdp/module/units.hpp>
#include <tessera/fsdp/sharding/problem.hpp>
#include <tessera/fsdp/sharding/residency.hpp>
#include <tessera/fsdp/sharding/schedule.hpp>
#include <tessera/fsdp/sharding/slots.hpp>

namespace fsdp {

/// A pass: the problem of its schedule, and the schedule, placed.
struct PlannedPass {
  sharding::Problem problem;
  sharding::Schedule schedule;
};

/// The stack-independent part of a ShardedModule: groups, names and schedules.
class ModulePlan {
 public:
  using ScheduleOf = std::function<sharding::Schedule(const sharding::Problem&)>;

  /// `axes` are those of groups that are not resident; `ranks`: of the world; `overlaps`: whether collectives overlap
  /// computation. Throws
  /// InputError for units, options and orders that do not fit together.
  ModulePlan(std::span<const Unit> units, const PassPlan& passes, const sharding::Facts& facts,
             const sharding::Axes& axes, int ranks, bool overlaps);
  ~ModulePlan();

  /// The groups of the units' parameters; the module moves the parameters out of them.
  std::vector<GroupedParameters>& grouped() { return grouped_; }
  /// Adds the next group's facts and a hash of its layouts, which only `require_same` needs.
  void add(const sharding::GroupFacts& facts, std::uint64_t layouts = 0);
  /// Makes, checks and places the schedules of all passes; with a budget (sharding::Facts), chooses first how long
  /// groups are held. `bytes_per_weight`: of the type that is gathered. Call it after the last `add`. Throws InputError
  /// for a schedule that cannot be run, and for a budget that holds none.
  void make_schedules(ScheduleOf schedule_of, std::int64_t bytes_per_weight);
  /// Throws the same InputError on every rank unless all ranks have the same units, layouts and schedules.
  void require_same(const comm::Ranks& ranks) const;

  /// See the functions of the same name in ShardedModule.
  /// @{
  const sharding::Problem& problem() const { return problem_; }
  const sharding::Names& names() const { return names_; }
  const std::vector<Reference>& references(int unit) const { return references_[static_cast<std::size_t>(unit)]; }
  int first_backward() const { return first_backward_; }
  const PlannedPass& planned(sharding::Pass pass, int order, int micro_batches) const;
  int step_classes() const { return static_cast<int>(classes_.size()); }
  int step_class(int group) const { return class_of_[static_cast<std::size_t>(group)]; }
  bool class_trained_by(int step_class, int order) const {
    return classes_[static_cast<std::size_t>(step_class)][static_cast<std::size_t>(order)];
  }
  /// @}
  /// Number of orders; at least one.
  int orders() const { return static_cast<int>(passes_.orders.size()); }
  /// Whether the module's purpose has a pass.
  bool has(sharding::Pass pass) const;
  /// Most micro-batches of a training pass.
  int micro_batches() const { return passes_.micro_batches; }
  /// The sizes of slots that are large enough for all passes.
  const sharding::SlotSizes& slots() const { return slots_; }
  /// What was chosen within the strategy's budget; no holds if it has none, or if the module generates.
  const sharding::Residency& residency() const { return residency_; }

 private:
  using Key = std::tuple<sharding::Pass, int, int>;  ///< of a schedule: the pass, the order, its micro-batches

  void check_pieces(const sharding::Facts& facts, int groups) const;
  void check_orders(std::span<const Unit> units) const;
  void require_used() const;
  void find_classes();
  bool trains(const sharding::Problem& problem, int group) const;
  std::vector<Key> keys() const;
  int most_micro_batches(sharding::Pass pass) const;
  void choose_holds(std::int64_t bytes_per_weight);
  sharding::Problem problem_of(const Key& key) const;
  PlannedPass made(const Key& key) const;

  PassPlan passes_;
  std::int64_t budget_ = 0;  ///< see sharding::Facts
  sharding::Problem problem_;
  sharding::Names names_;
  std::vector<GroupedParameters> grouped_;
  std::vector<std::vector<Reference>> references_;
  ScheduleOf schedule_of_;
  mutable std::map<Key, PlannedPass> passes_made_;  ///< those of fewer micro-batches are made when asked for
  std::uint64_t units_digest_ = 0;                  ///< of all that is declared of tensors
  std::uint64_t steps_digest_ = 0;                  ///< of what groups of parameters set for an optimizer's steps
  std::uint64_t digest_ = 0;                        ///< of all schedules
  std::uint64_t layouts_digest_ = 0;                ///< of the layouts of all groups
  std::vector<std::vector<bool>> classes_;          // [classes][orders]: whether an order trains it
  std::vector<int> class_of_;                       // [groups]
  sharding::Residency residency_;
  sharding::SlotSizes slots_;
  int first_backward_ = 0;
};

}  // namespace fsdp
