// SPDX-License-Identifier: Apache-2.0
/// @file
/// Where a pass is in its schedule, and what may follow: the part of Pass and Use that does not depend on a stack's
/// types.
#pragma once

#include <cstddef>
#include <optional>
#include <string>
#include <string_view>

#include <tessera/fsdp/module/module_plan.hpp>
#include <tessera/fsdp/sharding/problem.hpp>
#include <tessera/fsdp/sharding/schedule.hpp>

namespace fsdp {

/// The state of a pass. Errors name the call that the caller of the pass made, and change nothing, except that
/// `must_abandon` reports a pass that was left unfinished once.
class PassCursor {
 public:
  /// `makes_step`: a step follows, of this pass's gradients. `moves_activations`: the caller gives ActivationWork.
  /// Throws LogicError as Pass does. `module` must outlive it.
  PassCursor(ModuleState& module, sharding::Pass kind, int order, int micro_batches, bool makes_step,
             bool moves_activations);

  /// Throws LogicError unless a pass can begin. Returns whether the last one was interrupted, so that what it left in
  /// flight must be abandoned before `begin`.
  bool must_abandon();
  /// Begins the pass. It ends by one of these: `end` when all tasks have run, `abandon` after an exception, `leave` if
  /// it is destroyed unfinished.
  /// @{
  void begin();
  void end();
  void abandon();
  void leave();
  /// @}
  /// Whether the pass has ended.
  bool over() const { return over_; }
  /// Whether an exception unwinds that was not in flight at construction.
  bool unwinds() const;
  /// Whether a step follows, of this pass's gradients.
  bool makes_step() const { return makes_step_; }

  /// The next task, and whether there is none. `advance` returns it, and goes on to the one after it.
  /// @{
  const sharding::Task& task() const { return schedule()[at_]; }
  bool at_end() const { return at_ == schedule().size(); }
  const sharding::Task& advance() { return schedule()[at_++]; }
  /// @}
  /// The next computation; nothing at the end of the pass.
  std::optional<sharding::Task> next() const;
  /// Whether a computation reads weights, and whether it writes gradients.
  /// @{
  bool reads(const sharding::Task& task) const { return planned_.problem.uses_weights(task); }
  bool writes(const sharding::Task& task) const { return planned_.problem.writes_gradients(task); }
  /// @}
  /// Whether this rank computes the task's micro-batch, and whether it moves the activations of this one: in the rest
  /// of a forfeited pass, exchanges alone.
  /// @{
  bool computes(const sharding::Task& task) const { return task.micro_batch != skipped_; }
  bool moves(const sharding::Task& task) const;
  /// @}
  /// A task in words, as in a trace.
  std::string text_of(const sharding::Task& task) const;

  /// Throws LogicError after the end of the pass, and inside of a Use; the message names the call `what`, and what to
  /// do `then`.
  void require_outside(std::string_view what, const char* then = "end that use first, by done() or its scope") const;
  /// Throws LogicError as Pass::finish does.
  void require_finished() const;
  /// Throws LogicError as Pass::enter does.
  sharding::Task require_next() const;
  /// Throws LogicError unless this computation is the next one, and this rank has a piece of the step for it.
  void require_next(sharding::Action action, int unit) const;
  /// Begins and ends a Use, of the computation that is the next task.
  /// @{
  void begin_use();
  void end_use() { inside_ = false; }
  /// @}
  /// Returns true once in a Use that reads weights: they must then be waited for.
  bool must_wait_for_weights();
  /// Skips the next micro-batch and returns its number; throws LogicError as Pass::skip does.
  int skip();
  /// Gives the rest of the pass up.
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
  int thrown_;            ///< exceptions in flight at construction
  std::size_t at_ = 0;    ///< number of the next task
  int computed_ = -1;     ///< micro-batch of the last computation
  int skipped_ = -1;      ///< micro-batch that was skipped last
  bool inside_ = false;   ///< whether a Use is alive
  bool arrived_ = false;  ///< whether the weights of this Use have been waited for
  bool forfeited_ = false;
  bool over_ = false;
};

/// The checks of a Use of `cursor`'s pass, which is null after the end of the use; `task` is its computation. They
/// throw LogicError.
class UseCheck {
 public:
  /// `cursor` must outlive it.
  UseCheck(const PassCursor* cursor, const sharding::Task& task) : cursor_(cursor), task_(task) {}

  /// That the use is under way, and that its computation reads weights, or makes gradients.
  /// @{
  void weights() const;
  void gradients() const;
  /// @}
  /// That the unit has a tensor of this number, or exactly as many tensors as a struct has fields.
  /// @{
  void index(std::size_t index) const;
  void count(std::size_t fields) const;
  /// @}
  /// Returns the number of the unit's tensor of this name.
  std::size_t index_of(std::string_view name) const;

 private:
  bool under_way() const { return cursor_ != nullptr && !cursor_->over_; }
  std::size_t tensors() const;

  const PassCursor* cursor_;
  const sharding::Task& task_;
};

}  // namespace fsdp
