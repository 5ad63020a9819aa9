// SPDX-License-Identifier: Apache-2.0
/// @file
/// The plan of a module, before it has memory: its groups, their names, and the schedules of its passes. And all else
/// that a ShardedModule knows besides its tensors.
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <functional>
#include <map>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <tuple>
#include <vector>

#include <tessera/comm/ranks.hpp>
#include <tessera/fsdp/core/function_ref.hpp>
#include <tessera/fsdp/core/parameter.hpp>
#include <tessera/fsdp/device/memory.hpp>
#include <tessera/fsdp/module/group_tensors.hpp>
#include <tessera/fsdp/module/order.hpp>
#include <tessera/fsdp/module/units.hpp>
#include <tessera/fsdp/sharding/problem.hpp>
#include <tessera/fsdp/sharding/residency.hpp>
#include <tessera/fsdp/sharding/schedule.hpp>
#include <tessera/fsdp/sharding/sequence.hpp>
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
  void check_length(const Order& order) const;
  void require_used() const;
  void find_classes();
  std::vector<bool> trained_by(int order) const;
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
  std::string units_;                               ///< all that is declared of tensors, a line each
  std::uint64_t steps_digest_ = 0;                  ///< of what groups of parameters set for an optimizer's steps
  std::uint64_t digest_ = 0;                        ///< of all schedules
  std::uint64_t layouts_digest_ = 0;                ///< of the layouts of all groups
  std::vector<std::vector<bool>> classes_;          // [classes][orders]: whether an order trains it
  std::vector<int> class_of_;                       // [groups]
  sharding::Residency residency_;
  sharding::SlotSizes slots_;
  int first_backward_ = 0;
};

/// Returns memory of so many bytes for a purpose, zeroed and aligned to device::alignment; or nullptr, for the device's
/// own.
using LendMemory = std::function<std::shared_ptr<std::byte>(device::MemoryKind, std::int64_t bytes)>;

/// What a ShardedModule is made for, besides its units and strategy.
struct ModuleSettings {
  PassPlan passes = {};
  int threads = 1;                        ///< of the library's own operations
  std::int64_t arena_bytes = 0;           ///< of temporary tensors, from a dry run; ignored in a dry run
  StepWork step_work = elementwise_work;  ///< what buffer::Owned balances over the ranks
  LendMemory lend = {};                   ///< not used for memory that ranks of other processes read in place
};

/// How far the passes of a module have come.
struct PassProgress {
  /// Where the last pass is.
  enum class State : std::uint8_t {
    idle,         ///< no pass is under way
    running,      ///< a pass has begun and is not finished
    left,         ///< a pass was destroyed unfinished, without a reason
    interrupted,  ///< an exception ended it; the next pass begins anew
  };
  State state = State::idle;
  std::size_t at = 0;          ///< of a pass that was left: how many tasks it had run
  bool has_gradients = false;  ///< the gradients at rest are those of a finished training pass
  bool forfeited = false;      ///< this rank gave up that pass
};

/// Where a module runs, as far as its plan depends on it.
struct ModuleRank {
  int rank = 0;
  int ranks = 1;
  bool overlaps = false;     ///< collectives overlap computation (Device::overlaps)
  bool counts_only = false;  ///< a dry run (Device::counts_only)
};

/// The stack-independent base of ShardedModule.
class ModuleState : private ModulePlan {
 public:
  ModuleState(const ModuleState&) = delete;
  ModuleState& operator=(const ModuleState&) = delete;

  /// What it was made for.
  const ModuleSettings& settings() const { return settings_; }
  /// The problem and the placed schedule of a pass with so many micro-batches (0: as many as planned); empty if the
  /// module's purpose has no such pass. Throws LogicError for an order or a number that was not planned.
  const PlannedPass& planned(sharding::Pass pass, int order = 0, int micro_batches = 0) const;
  /// The placed schedule of a pass by the first order, with as many micro-batches as planned.
  const sharding::Schedule& schedule(sharding::Pass pass) const;
  /// How long groups are held by the strategy's budget; no holds if it has none.
  using ModulePlan::residency;
  /// The problem that all of them share, without pass, order and micro-batches.
  using ModulePlan::problem;
  /// Names of units and groups, for messages.
  using ModulePlan::names;
  /// Which groups each unit uses.
  const std::vector<sharding::UnitUse>& uses() const { return problem().units; }
  /// Returns, for each parameter of a unit, its group and its index in the group.
  using ModulePlan::references;
  /// The lowest unit that has a backward; units before it save nothing.
  using ModulePlan::first_backward;

  /// This rank's place among the ranks that share sequences (PassPlan::ranks_per_sequence).
  SequenceGroup sequence_group() const { return sequence_group_; }
  /// `step_pieces`: pieces of a step's batch (Reproducible); 0: one for each micro-batch of each group of ranks that
  /// share sequences. `own_micro_batches`: the first ones of a step, which this rank computes; in a dry run all.
  /// `step_piece`: this rank's piece in a micro-batch, of which it computes its part of the rows; nothing if it has
  /// none, in the last one.
  /// @{
  int step_pieces() const;
  int own_micro_batches() const;
  std::optional<int> step_piece(int micro_batch) const;
  /// @}
  /// Groups trained by the same orders form a class: they are stepped equally often. The number of classes, the class
  /// of a group's index, and whether the last training pass made a class's gradients.
  /// @{
  using ModulePlan::step_class;
  using ModulePlan::step_classes;
  bool steps_class(int step_class) const;
  /// @}

  /// Number of elements that are trained on this rank, padding included.
  std::int64_t trained_size() const { return trained_size_; }
  /// Returns its groups as stack-independent bases.
  const std::vector<const GroupTensors*>& group_list() const { return group_list_; }
  /// Returns three counts of elements of a rank of the world: trained ones at rest, all at rest, and those that it
  /// keeps after forward. They may differ between ranks.
  std::array<std::int64_t, 3> elements_of(int rank) const;
  /// Whether every rank holds all weights between steps (sharding::Facts).
  bool whole_at_rest() const { return whole_at_rest_; }
  /// Parameters whose weights were neither initialised, nor loaded, nor set.
  const std::vector<std::string>& without_values() const { return without_values_; }
  /// Return a parameter that a unit refers to, or one by its name; InputError if there is none.
  /// @{
  const Parameter& parameter(const Reference& reference) const;
  const Parameter& parameter(std::string_view name) const;
  /// @}

  /// For Pass: the progress of passes, and the start of a training pass by this order.
  /// @{
  PassProgress& progress() { return progress_; }
  void train_by(int order) { stepped_order_ = order; }
  /// @}

 protected:
  /// See ModulePlan, which throws for what does not fit together.
  ModuleState(std::span<const Unit> units, ModuleSettings settings, const sharding::Facts& facts,
              const sharding::Axes& axes, const ModuleRank& where);
  ~ModuleState();

  /// The plan, for the module that makes it.
  ModulePlan& plan() { return *this; }
  /// Adds a group, in the order of sharding::Problem::groups; it must outlive this object.
  void list_group(const GroupTensors& group) { group_list_.push_back(&group); }
  /// Adds the elements of a trained group on this rank.
  void add_trained(std::int64_t elements) { trained_size_ += elements; }
  /// Takes the parameters for which `were_set(name)` holds off the list of those without values.
  void give_values(FunctionRef<bool(const std::string&)> were_set);
  /// Returns the memory that the host lends for a purpose; nullptr if it lends none. Throws InputError if it is not
  /// aligned.
  std::shared_ptr<std::byte> lent(device::MemoryKind kind, std::int64_t bytes) const;

 private:
  ModuleSettings settings_;
  SequenceGroup sequence_group_;
  bool counts_only_;
  bool whole_at_rest_;
  std::vector<const GroupTensors*> group_list_;
  std::int64_t trained_size_ = 0;
  PassProgress progress_;
  int stepped_order_ = 0;  ///< order of the last training pass
  std::vector<std::string> without_values_;
};

}  // namespace fsdp
