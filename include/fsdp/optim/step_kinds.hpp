// SPDX-License-Identifier: Apache-2.0
/// @file
/// The decisions that an optimizer's step needs: one for each class of groups that are stepped together, and for each
/// combination of learning rate and clip that groups of parameters (OptimizerGroup) make. And the part of StepControl
/// that does not depend on a stack's types.
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

/// What decisions of a step differ in.
struct StepKind {
  int step_class = 0;
  double lr = 1;         ///< factor of the learning rate
  double clip = 0;       ///< not used with norm 0
  std::size_t norm = 0;  ///< number of the norm that clips; see device::DecideStep
  friend bool operator==(const StepKind&, const StepKind&) = default;
};

/// All kinds of a module's decisions, the same on all ranks, whatever shards they hold.
class StepKinds {
 public:
  /// `class_of` [groups]: the class of each group.
  StepKinds(int classes, GroupList groups, std::span<const int> class_of);
  /// Those of a module.
  explicit StepKinds(const ModuleState& module);

  /// In order, and how many: first those of the classes, without groups of parameters.
  /// @{
  const std::vector<StepKind>& list() const { return list_; }
  std::size_t size() const { return list_.size(); }
  /// @}
  /// Norms besides the global one.
  std::int64_t apart() const { return apart_; }
  /// Returns the index of a parameter's kind.
  std::size_t index_of(int step_class, const Parameter& parameter) const;

 private:
  std::vector<StepKind> list_;
  std::int64_t apart_ = 0;
};

/// For each norm, the kind whose decision has it last: of the last two steps, which take turns in two slots.
class NormMakers {
 public:
  /// Those of a step of all classes.
  explicit NormMakers(const StepKinds& kinds);

  /// Sets the makers after a step in this slot, of the classes that `steps`; other norms are those of earlier steps.
  void end_step(const StepKinds& kinds, std::size_t slot, FunctionRef<bool(int step_class)> steps);
  /// The index of a norm's kind.
  std::size_t of(std::size_t slot, std::size_t norm) const { return made_by_[slot][norm]; }

 private:
  std::array<std::vector<std::size_t>, 2> made_by_;  // [1 + norms apart]
};

/// The steps of a run. Decisions of the last two are kept, in two slots that they take in turn.
class StepCount {
 public:
  /// Number of steps so far.
  std::int64_t steps() const { return steps_; }
  /// The slot of the next step, of the last one, and of the one `behind` steps before the last. Throws LogicError if
  /// that is not kept.
  /// @{
  std::size_t next_slot() const;
  std::size_t last_slot() const;
  std::size_t kept_slot(std::int64_t behind) const;
  /// @}
  /// Counts a step, and returns its slot.
  std::size_t add();
  /// Continues after `steps` steps. Throws InputError unless `taken`, a number for each class, has `classes` of them.
  void resume(std::int64_t steps, std::size_t taken, int classes);

 private:
  std::int64_t steps_ = 0;
};

/// Returns the rules. Throws InputError for a clip that is negative or not finite.
device::StepRules checked(const device::StepRules& rules);
/// Throws InputError for a learning rate or a loss scale that is not finite as a float, or a scale that is not above 0.
void check(const device::StepInputs& inputs);
/// Throws LogicError unless there is a loss, and at most one for each micro-batch.
void check_losses(std::int64_t losses, std::int64_t micro_batches);

}  // namespace fsdp::optim

// Compiled into the library.
FSDP_LIST(fsdp::optim::StepKind)
