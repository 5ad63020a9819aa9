// SPDX-License-Identifier: Apache-2.0
/// @file
/// What a ShardedModule knows besides its tensors: its settings, its plan, and the passes that were run on it. The part
/// that does not depend on a stack's types.
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <functional>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include <tessera/fsdp/core/function_ref.hpp>
#include <tessera/fsdp/core/parameter.hpp>
#include <tessera/fsdp/device/memory.hpp>
#include <tessera/fsdp/module/group_tensors.hpp>
#include <tessera/fsdp/module/module_plan.hpp>
#include <tessera/fsdp/module/order.hpp>
#include <tessera/fsdp/module/units.hpp>
#include <tessera/fsdp/sharding/problem.hpp>
#include <tessera/fsdp/sharding/schedule.hpp>
#include <tessera/fsdp/sharding/sequence.hpp>

namespace fsdp {

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
