// SPDX-License-Identifier: Apache-2.0
/// @file
/// The position of a pass in its schedule, and the calls that are valid there: the part of Pass and Use that does not
/// depend on a stack's types.
#pragma once

#include <cstddef>
#include <optional>
#include <string>
#include <string_view>

#include <tessera/fsdp/module/module_plan.hpp>
#include <tessera/fsdp/sharding/problem.hpp>
#include <tessera/fsdp/sharding/schedule.hpp>

namespace fsdp {

/// The state of a pass. Errors report the call that the caller of the pass made. A failed call changes nothing, except
/// that `must_abandon` reports an unfinished pass only once.
class PassCursor {
 public:
  /// `makes_step`: whether a step with this pass's gradients follows. `moves_activations`: whether the caller provides
  /// ActivationWork. Throws LogicError as Pass does. `module` must outlive it.
  PassCursor(ModuleState& module, sharding::Pass kind, int order, int micro_batches, bool makes_step,
             bool moves_activations);

  /// Throws LogicError unless a pass can begin. Returns whether the last pass was interrupted, so that its collectives
  /// in flight must be abandoned before `begin`.
  bool must_abandon();
  /// Begins the pass, and ends it by one of three calls: `end` when all tasks have run, `abandon` after an exception,
  /// `leave` if it is destroyed unfinished.
  /// @{
  void begin();
  void end();
  void abandon();
  void leave();
  /// @}
  /// Whether the pass has ended.
  bool over() const { return over_; }
  /// Whether the stack is being unwound by an exception that was not in flight at construction.
  bool unwinds() const;
  /// Whether a step with this pass's gradients follows.
  bool makes_step() const { return makes_step_; }

  /// The next task, and whether all tasks have run. `advance` returns the next task and moves past it.
  /// @{
  const sharding::Task& task() const { return schedule()[at_]; }
  bool at_end() const { return at_ == schedule().size(); }
  const sharding::Task& advance() { return schedule()[at_++]; }
  /// @}
  /// Returns the next computation; nullopt at the end of the pass.
  std::optional<sharding::Task> next() const;
  /// Whether a computation reads weights, and whether it writes gradients.
  /// @{
  bool reads(const sharding::Task& task) const { return planned_.problem.uses_weights(task); }
  bool writes(const sharding::Task& task) const { return planned_.problem.writes_gradients(task); }
  /// @}
  /// Whether this rank computes the task's micro-batch, and whether it executes this transfer of activations: in the
  /// rest of a forfeited pass, only exchanges.
  /// @{
  bool computes(const sharding::Task& task) const { return task.micro_batch != skipped_; }
  bool moves(const sharding::Task& task) const;
  /// @}
  /// Returns a task as text, as in a trace.
  std::string text_of(const sharding::Task& task) const;

  /// Throws LogicError after the end of the pass, and inside a Use. The message contains the call `what`, and the
  /// advice `then`.
  void require_outside(std::string_view what, const char* then = "end that use first, by done() or its scope") const;
  /// Throws LogicError as Pass::finish does.
  void require_finished() const;
  /// Throws LogicError as Pass::enter does.
  sharding::Task require_next() const;
  /// Throws LogicError unless this computation is the next one and this rank has a piece of the step for it.
  void require_next(sharding::Action action, int unit) const;
  /// Begin and end a Use of the next task, which is a computation.
  /// @{
  void begin_use();
  void end_use() { inside_ = false; }
  /// @}
  /// Returns true at the first call within a Use that reads weights: the caller must then wait for them.
  bool must_wait_for_weights();
  /// Skips the next micro-batch and returns its number; throws LogicError as Pass::skip does.
  int skip();
  /// Forfeits the rest of the pass.
  void forfeit();

 private:
  friend class UseCheck;

  const sharding::Schedule& schedule() const { return planned_.schedule; }
  const std::string& name_of(int unit) const { return module_.names().units[static_cast<std::size_t>(unit)]; }
  std::string text(const sharding::Task& task) const;
  void require_under_way() const;

  ModuleState& module_;
  sharding::Pass kind_;
  bool makes_step_;
  const PlannedPass& planned_;
  int thrown_;            ///< number of exceptions in flight at construction
  std::size_t at_ = 0;    ///< number of the next task
  int computed_ = -1;     ///< micro-batch of the last computation, -1 before the first
  int skipped_ = -1;      ///< micro-batch that was skipped last; -1 if none was skipped
  bool inside_ = false;   ///< whether a Use is alive
  bool arrived_ = false;  ///< whether the weights of this Use have been waited for
  bool forfeited_ = false;
  bool over_ = false;
};

/// The checks of a Use. `cursor` is the cursor of its pass, or null after the end of the Use; `task` is its
/// computation. All checks throw LogicError.
class UseCheck {
 public:
  /// `cursor` must outlive it.
  UseCheck(const PassCursor* cursor, const sharding::Task& task) : cursor_(cursor), task_(task) {}

  /// Check that the Use has not ended, and that its computation reads weights, or computes gradients.
  /// @{
  void weights() const;
  void gradients() const;
  /// @}
  /// Check that the unit has a tensor with this index, or exactly as many tensors as a struct has fields.
  /// @{
  void index(std::size_t index) const;
  void count(std::size_t fields) const;
  /// @}
  /// Returns the index of the unit's tensor with this name.
  std::size_t index_of(std::string_view name) const;

 private:
  bool under_way() const { return cursor_ != nullptr && !cursor_->over_; }
  std::size_t tensors() const;

  const PassCursor* cursor_;
  const sharding::Task& task_;
};

}  // namespace fsdp
