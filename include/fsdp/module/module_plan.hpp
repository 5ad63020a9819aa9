// SPDX-License-Identifier: Apache-2.0
/// @file
/// The plan of a module, before memory is allocated: its groups, their names, and the schedules of its passes. Also all
/// other state of a ShardedModule except its tensors.
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
#include <tessera/fsdp/module/units.hpp>
#include <tessera/fsdp/sharding/problem.hpp>
#include <tessera/fsdp/sharding/schedule.hpp>
#include <tessera/fsdp/sharding/sequence.hpp>
#include <tessera/fsdp/sharding/slots.hpp>
#include <tessera/fsdp/sharding/strategy.hpp>

namespace fsdp {

/// The problem of a pass's schedule, and the placed schedule.
struct PlannedPass {
  sharding::Problem problem;
  sharding::Schedule schedule;
};

/// The stack-independent part of a ShardedModule: groups, names and schedules.
class ModulePlan {
 public:
  /// `axes`: the axes of each part of the strategy; `ranks`: the size of the world; `overlaps`: whether collectives
  /// overlap computation. Throws InputError for units, options and orders that do not fit together.
  ModulePlan(std::span<const Unit> units, const PassPlan& passes, StrategyCalls strategy,
             std::vector<sharding::Axes> axes, int ranks, bool overlaps);
  ~ModulePlan();

  /// The strategy, and the part of it that a group has, or that part's index.
  /// @{
  const StrategyCalls& strategy() const { return strategy_; }
  const StrategyPart& part_of(const GroupedParameters& group) const { return strategy_.parts[group.part]; }
  std::size_t part_index(std::size_t group) const { return grouped_[group].part; }
  /// @}
  /// Returns the facts about a group, without its slots and its bytes.
  sharding::GroupFacts facts_of(const GroupedParameters& group) const;
  /// The groups of the units' parameters; the module moves the parameters out of these groups.
  std::vector<GroupedParameters>& grouped() { return grouped_; }
  /// Adds the next group's facts, and a hash of its layouts, which only `require_same` uses.
  void add(const sharding::GroupFacts& facts, std::uint64_t layouts = 0);
  /// Makes, checks and places the schedules of all passes; with a budget (sharding::Facts), first chooses how long
  /// groups stay gathered. Call it after the last `add`. Throws InputError for a schedule that cannot be run, and for a
  /// budget that no schedule satisfies.
  void make_schedules();
  /// Throws the same InputError on every rank unless all ranks have the same units, layouts and schedules.
  void require_same(const comm::Ranks& ranks) const;

  /// See the functions of the same name in ModuleState.
  /// @{
  const sharding::Problem& problem() const { return problem_; }
  const sharding::Names& names() const { return names_; }
  const std::vector<Reference>& references(int unit) const { return references_[static_cast<std::size_t>(unit)]; }
  int first_backward() const { return first_backward_; }
  const PlannedPass& planned(sharding::Pass pass, int order = 0, int micro_batches = 0) const;
  int step_classes() const { return static_cast<int>(classes_.size()); }
  int step_class(int group) const { return class_of_[static_cast<std::size_t>(group)]; }
  bool class_trained_by(int step_class, int order) const {
    return classes_[static_cast<std::size_t>(step_class)][static_cast<std::size_t>(order)];
  }
  /// @}
  /// Number of orders; at least 1.
  int orders() const { return static_cast<int>(passes_.orders.size()); }
  /// The sizes of the slots, which are large enough for all passes.
  const sharding::SlotSizes& slots() const { return slots_; }
  /// The holds chosen within the strategy's budget; without holds if the strategy has no budget, or if the module
  /// generates.
  const sharding::Residency& residency() const { return residency_; }

 private:
  /// Key of a schedule: the pass, the order, the number of micro-batches.
  using Key = std::tuple<sharding::Pass, int, int>;

  void check_pieces(int groups) const;
  void check_orders(std::span<const Unit> units) const;
  void check_length(const Order& order) const;
  void require_used() const;
  void find_classes();
  std::vector<Key> keys() const;
  int most_micro_batches(sharding::Pass pass) const;
  void choose_holds();
  sharding::Problem problem_of(const Key& key) const;
  PlannedPass made(const Key& key) const;

  PassPlan passes_;
  StrategyCalls strategy_;
  std::vector<sharding::Axes> axes_;  ///< of each part of the strategy
  sharding::Problem problem_;
  sharding::Names names_;
  std::vector<GroupedParameters> grouped_;
  std::vector<std::vector<Reference>> references_;
  mutable std::map<Key, PlannedPass> passes_made_;  ///< passes with fewer micro-batches are added on request
  std::string units_;                               ///< the declarations of all tensors, one line each
  std::uint64_t steps_digest_ = 0;                  ///< hash of the step options that parameter groups set
  std::uint64_t digest_ = 0;                        ///< hash of all schedules
  std::uint64_t layouts_digest_ = 0;                ///< hash of the layouts of all groups
  std::vector<std::vector<bool>> classes_;          // [classes][orders]: whether the order trains the class
  std::vector<int> class_of_;                       // [groups]
  sharding::Residency residency_;
  sharding::SlotSizes slots_;
  int first_backward_ = 0;
};

/// A callback that returns `bytes` bytes of memory for a purpose, zeroed and aligned to device::alignment; or nullptr,
/// so that the device allocates it.
using LendMemory = std::function<std::shared_ptr<std::byte>(device::MemoryKind, std::int64_t bytes)>;

/// The settings of a ShardedModule, in addition to its units and strategy.
struct ModuleSettings {
  PassPlan passes = {};
  int threads = 1;  ///< number of threads of the library's own operations
  /// Bytes for temporary tensors, as measured by a dry run; ignored in a dry run.
  std::int64_t arena_bytes = 0;
  StepWork step_work = {};  ///< what layouts use of the optimizer: optim::step_work(optimizer)
  /// Lends memory; not used for memory that ranks in other processes read in place.
  LendMemory lend = {};
};

/// The progress of a module's passes.
struct PassProgress {
  /// The state of the last pass.
  enum class State : std::uint8_t {
    idle,         ///< no pass is running
    running,      ///< a pass has begun and is not finished
    left,         ///< a pass was destroyed unfinished, without an exception
    interrupted,  ///< an exception ended the pass; the next pass starts over
  };
  State state = State::idle;
  std::size_t at = 0;          ///< for a pass that was left: number of tasks that it had run
  bool has_gradients = false;  ///< the gradients at rest come from a finished training pass
  bool forfeited = false;      ///< this rank forfeited that pass
};

/// The properties of the rank and device on which the plan of a module depends.
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

  /// The settings of the module.
  const ModuleSettings& settings() const { return settings_; }
  /// The problem and the placed schedule of a pass with `micro_batches` micro-batches (0: as many as planned); empty if
  /// the module's purpose has no such pass. Throws LogicError for an order or a number that was not planned.
  using ModulePlan::planned;
  /// The placed schedule of a pass in the first order, with as many micro-batches as planned.
  const sharding::Schedule& schedule(sharding::Pass pass) const;
  /// How long groups stay gathered within the strategy's budget; without holds if it has no budget.
  using ModulePlan::residency;
  /// The common part of the problems of all passes: without pass, order and number of micro-batches.
  using ModulePlan::problem;
  /// Names of units and groups, for messages.
  using ModulePlan::names;
  /// The groups that each unit uses.
  const std::vector<sharding::UnitUse>& uses() const { return problem().units; }
  /// Returns, for each parameter of a unit, its group and its index in the group.
  using ModulePlan::references;
  /// The lowest unit that has a backward; units before it save no activations.
  using ModulePlan::first_backward;

  /// This rank's place among the ranks that share sequences (PassPlan::ranks_per_sequence).
  SequenceGroup sequence_group() const { return sequence_group_; }
  /// `step_pieces`: the number of pieces of a step's batch (Reproducible); 0 without pieces, when each micro-batch of
  /// each group of ranks that share sequences counts as a piece. `own_micro_batches`: the number of leading
  /// micro-batches of a step that this rank computes; all in a dry run. `step_piece`: the index of this rank's piece in
  /// a micro-batch, of which it computes its part of the rows; nullopt if it has no piece in the last micro-batch.
  /// @{
  int step_pieces() const;
  int own_micro_batches() const;
  std::optional<int> step_piece(int micro_batch) const;
  /// @}
  /// Groups trained by the same orders form a class: they are stepped equally often. These return the number of
  /// classes, the class of a group by its index, and whether the last training pass computed a class's gradients.
  /// @{
  using ModulePlan::step_class;
  using ModulePlan::step_classes;
  bool steps_class(int step_class) const;
  /// @}

  /// Number of elements trained on this rank, including padding.
  std::int64_t trained_size() const { return trained_size_; }
  /// Returns the module's groups as their stack-independent base class.
  const std::vector<const GroupTensors*>& group_list() const { return group_list_; }
  /// Returns the element counts of a rank of the world (fsdp::elements_of). They may differ between ranks.
  std::array<std::int64_t, 3> elements_of(int rank) const { return fsdp::elements_of(group_list_, rank); }
  /// The strategy's parts: several for a PerUnit.
  const std::vector<StrategyPart>& parts() const { return strategy().parts; }
  /// Returns the text of a part with the equal ones: "embed_tokens|lm_head=replicated", or "otherwise fsdp2".
  std::string text_of_part(std::size_t part) const;
  /// Returns the index of a group's strategy in `parts`.
  using ModulePlan::part_index;
  /// See fsdp::first_cut. The same on all ranks.
  Reference first_cut(const StepWork& step) const { return fsdp::first_cut(group_list_, step); }
  /// Whether every rank holds all weights between steps (sharding::Facts).
  bool whole_at_rest() const { return strategy().facts.whole_at_rest; }
  /// Names of the parameters whose weights were neither initialised, nor loaded, nor set.
  const std::vector<std::string>& without_values() const { return without_values_; }
  /// Return a parameter by a unit's reference or by its name. Throw InputError if it does not exist.
  /// @{
  const Parameter& parameter(const Reference& reference) const;
  const Parameter& parameter(std::string_view name) const;
  /// @}

  /// Used by Pass: the progress of passes, and the start of a training pass in this order.
  /// @{
  PassProgress& progress() { return progress_; }
  void train_by(int order) { stepped_order_ = order; }
  /// @}

 protected:
  /// Throws as the constructor of ModulePlan does.
  ModuleState(std::span<const Unit> units, ModuleSettings settings, const StrategyCalls& strategy,
              std::vector<sharding::Axes> axes, const ModuleRank& where);
  ~ModuleState();

  /// The plan, for the derived class that builds it.
  ModulePlan& plan() { return *this; }
  /// Removes the parameters for which `were_set(name)` is true from the list of parameters without values.
  void give_values(FunctionRef<bool(const std::string&)> were_set);
  /// Returns the memory that the host program lends for a purpose; nullptr if it lends none. Throws InputError if it is
  /// not aligned.
  std::shared_ptr<std::byte> lent(device::MemoryKind kind, std::int64_t bytes) const;

  std::vector<const GroupTensors*> group_list_;  ///< in the order of sharding::Problem::groups
  std::int64_t trained_size_ = 0;                ///< number of elements trained on this rank

 private:
  ModuleSettings settings_;
  SequenceGroup sequence_group_;
  bool counts_only_;
  PassProgress progress_;
  int stepped_order_ = 0;  ///< order of the last training pass
  std::vector<std::string> without_values_;
};

}  // namespace fsdp
