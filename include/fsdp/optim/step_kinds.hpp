// SPDX-License-Identifier: Apache-2.0
/// @file
/// The decisions that an optimizer's step needs: one for each class of groups that are stepped together, and for each
/// combination of learning rate and clip that groups of parameters (OptimizerGroup) specify. This file also contains
/// the part of StepControl that is independent of a stack's types.
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <span>
#include <vector>

#include <tessera/fsdp/core/function_ref.hpp>
#include <tessera/fsdp/core/lists.hpp>
#include <tessera/fsdp/core/parameter.hpp>
#include <tessera/fsdp/device/operations/optimizer.hpp>
#include <tessera/fsdp/module/group_tensors.hpp>
#include <tessera/fsdp/module/module_plan.hpp>

namespace fsdp::optim {

/// The properties in which decisions of a step differ.
struct StepKind {
  int step_class = 0;
  double lr = 1;         ///< factor of the learning rate
  double clip = 0;       ///< clip of a separate norm; unused with norm 0
  std::size_t norm = 0;  ///< index of the norm that clips; see device::DecideStep
  friend bool operator==(const StepKind&, const StepKind&) = default;
};

/// All kinds of a module's decisions. They are the same on all ranks and do not depend on a rank's shards.
class StepKinds {
 public:
  /// `class_of` [groups]: the class of each group.
  StepKinds(int classes, GroupList groups, std::span<const int> class_of);
  /// Constructs the kinds of a module.
  explicit StepKinds(const ModuleState& module);

  /// Return the kinds in order, and their number. The kinds of the classes, without groups of parameters, come first.
  /// @{
  const std::vector<StepKind>& list() const { return list_; }
  std::size_t size() const { return list_.size(); }
  /// @}
  /// Returns the number of norms in addition to the global norm.
  std::int64_t apart() const { return apart_; }
  /// Returns the index of a parameter's kind.
  std::size_t index_of(int step_class, const Parameter& parameter) const;

 private:
  std::vector<StepKind> list_;
  std::int64_t apart_ = 0;
};

/// For each norm, the kind whose decision contains its last value, for the last two steps, which alternate between two
/// slots.
class NormMakers {
 public:
  /// Constructs the state after a step of all classes.
  explicit NormMakers(const StepKinds& kinds);

  /// Updates the state after a step in this slot. `steps(step_class)` returns whether the step included a class; norms
  /// of other classes remain those of earlier steps.
  void end_step(const StepKinds& kinds, std::size_t slot, FunctionRef<bool(int step_class)> steps);
  /// Returns the index of a norm's kind.
  std::size_t of(std::size_t slot, std::size_t norm) const { return made_by_[slot][norm]; }

 private:
  std::array<std::vector<std::size_t>, 2> made_by_;  // [slots][1 + separate norms]
};

/// The number of steps of a run. The decisions of the last two steps are stored in two slots, which steps use
/// alternately.
class StepCount {
 public:
  /// Returns the number of steps so far.
  std::int64_t steps() const { return steps_; }
  /// Return the slot of the next step, of the last step, and of the step `behind` steps before the last. The third
  /// throws LogicError if that decision is no longer stored.
  /// @{
  std::size_t next_slot() const;
  std::size_t last_slot() const;
  std::size_t kept_slot(std::int64_t behind) const;
  /// @}
  /// Counts a step, and returns its slot.
  std::size_t add();
  /// Resumes after `steps` steps. Throws InputError unless `taken`, the number of per-class step counts, equals
  /// `classes`.
  void resume(std::int64_t steps, std::size_t taken, int classes);

 private:
  std::int64_t steps_ = 0;
};

/// Returns the rules. Throws InputError for a clip that is negative or not finite.
device::StepRules checked(const device::StepRules& rules);
/// Throws InputError for a learning rate or a loss scale that is not finite as a float, or a scale that is not above 0.
void check(const device::StepInputs& inputs);
/// Throws LogicError unless the number of losses is at least 1 and at most the number of micro-batches.
void check_losses(std::int64_t losses, std::int64_t micro_batches);

}  // namespace fsdp::optim

// Compiled into the library.
FSDP_LIST(fsdp::optim::StepKind)
