// SPDX-License-Identifier: Apache-2.0
/// @file
/// The tensors of a unit while the caller computes it, and the position of its pass in the schedule. A pass creates
/// both: tessera/fsdp/module/pass.hpp.
#pragma once

#include <array>
#include <cstddef>
#include <exception>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <type_traits>
#include <utility>

#include <tessera/fsdp/core/parameter.hpp>
#include <tessera/fsdp/module/module_plan.hpp>
#include <tessera/fsdp/module/sharded_module.hpp>
#include <tessera/fsdp/precision/policies.hpp>
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

template <class Stack>
class Pass;

/// A unit's tensors while the caller computes it. At most one Use of a pass is alive at a time. Its end (`done`, or the
/// destructor) starts the next tasks of the schedule (releases, reductions, the next gathers) and does not wait.
///
/// Views are contiguous, row-major, aligned to device::alignment, and valid until the end of the Use; afterwards they
/// are poisoned in debug builds and under AddressSanitizer. If the module has fixed slots, a unit's views have the same
/// addresses in each of its uses in a pass.
template <class Stack>
class [[nodiscard("a Use that is not named ends at once; write auto use = pass.forward(unit)")]] Use {
 public:
  using Compute = typename Stack::Precision::Compute;
  using Accumulate = typename Stack::Precision::Accumulate;
  using View = WeightView<typename Stack::Precision>;  ///< of a weight: Tensor<const Compute> unless some are float

  Use(const Use&) = delete;
  Use& operator=(const Use&) = delete;
  /// Takes over the computation; the destructor of `other` then does not end it.
  Use(Use && other) noexcept : pass_(std::exchange(other.pass_, nullptr)), task_(other.task_), thrown_(other.thrown_) {}
  /// Ends the computation, unless the stack is being unwound by an exception.
  ~Use() noexcept(false) {
    if (std::uncaught_exceptions() == thrown_) done();
  }
  /// Ends the computation.
  void done() {
    if (Pass<Stack>* const pass = std::exchange(pass_, nullptr)) pass->computed();
  }

  /// A tensor by its index in Unit::parameters, or by name: a weight, or the gradient of one. A gradient's memory is
  /// not cleared; GradientView::next specifies whether to overwrite it or to accumulate. They throw LogicError after
  /// the end of the Use, for an unknown tensor, for a weight in a backward that was declared to need no weights, for a
  /// weight whose type is not T (in a PrecisionBy, float weights are `weight<float>("norm")`), and
  /// for a gradient in a computation that computes none. The first request for a weight waits for the unit's gather.
  /// @{
  template <class T = Compute>
  Tensor<const T> weight(std::size_t index) const& {
    check().weights();
    check().index(index);
    pass_->wait_for_weights();
    return pass_->tasks_.template weight<T>(task_.index, index);
  }
  template <class T = Compute>
  Tensor<const T> weight(std::string_view name) const& {
    return weight<T>(check().index_of(name));
  }
  GradientView<Accumulate> gradient(std::size_t index) const& {
    check().gradients();
    check().index(index);
    return pass_->tasks_.gradient(task_.index, index, pass_->cursor_.writes(task_));
  }
  GradientView<Accumulate> gradient(std::string_view name) const& { return gradient(check().index_of(name)); }
  /// @}
  /// All weights or gradients, in the order of the unit's fields: written to a list of that length, or returned as a
  /// struct.
  /// @{
  void weights(std::span<View> list) const& {
    check().weights();
    pass_->wait_for_weights();
    check().count(list.size());
    for (std::size_t i = 0; i < list.size(); ++i) list[i] = pass_->tasks_.view(task_.index, i);
  }
  void gradients(std::span<GradientView<Accumulate>> list) const& {
    check().gradients();
    check().count(list.size());
    for (std::size_t i = 0; i < list.size(); ++i)
      list[i] = pass_->tasks_.gradient(task_.index, i, pass_->cursor_.writes(task_));
  }
  template <template <class> class Fields>
  Fields<View> weights() const& {
    std::array<View, field_count<Fields, View>> list;
    weights(list);
    return unflatten<Fields, View>(list);
  }
  template <template <class> class Fields>
  Fields<GradientView<Accumulate>> gradients() const& {
    std::array<GradientView<Accumulate>, field_count<Fields, GradientView<Accumulate>>> list;
    gradients(list);
    return unflatten<Fields, GradientView<Accumulate>>(list);
  }
  /// @}
  /// Returns a gradient for code that only accumulates: it is zeroed before its first write.
  /// @{
  Tensor<Accumulate> zeroed(std::size_t index) const& {
    const GradientView<Accumulate> view = gradient(index);
    if (view.wanted() && view.next() == Write::overwrite) {
      device::enqueue(pass_->module_.stream(), device::Fill<Accumulate>{.y = view.tensor, .value = 0.0f});
      pass_->own_queue_follows();
    }
    return view.tensor;
  }
  Tensor<Accumulate> zeroed(std::string_view name) const& { return zeroed(check().index_of(name)); }
  /// @}
  /// On a temporary, which ends before its views are used, these calls do not compile.
  /// @{
  template <class T = Compute, class Which>
  Tensor<const T> weight(const Which& which)&& {
    return named(*this).template weight<T>(which);
  }
  template <class Which>
  GradientView<Accumulate> gradient(const Which& which)&& {
    return named(*this).gradient(which);
  }
  template <class Which>
  Tensor<Accumulate> zeroed(const Which& which)&& {
    return named(*this).zeroed(which);
  }
  template <class List>
  void weights(const List& list)&& {
    named(*this).weights(list);
  }
  template <class List>
  void gradients(const List& list)&& {
    named(*this).gradients(list);
  }
  template <template <class> class Fields>
  Fields<View> weights()&& {
    return named(*this).template weights<Fields>();
  }
  template <template <class> class Fields>
  Fields<GradientView<Accumulate>> gradients()&& {
    return named(*this).template gradients<Fields>();
  }
  /// @}

  /// Returns the computation: its action, unit and micro-batch.
  const sharding::Task& task() const { return task_; }

 private:
  friend class Pass<Stack>;
  template <class Temporary>
  static Temporary& named(Temporary & use) {
    static_assert(!std::is_same_v<Temporary, Temporary>,
                  "fsdp: a Use that is not named ends with this expression, and its weights and gradients with it; "
                  "write auto use = pass.forward(unit), and take its tensors from use");
    return use;
  }
  Use(Pass<Stack> & pass, const sharding::Task& task)
      : pass_(&pass), task_(task), thrown_(std::uncaught_exceptions()) {}

  UseCheck check() const { return {pass_ == nullptr ? nullptr : &pass_->cursor_, task_}; }

  Pass<Stack>* pass_;
  sharding::Task task_;
  int thrown_;  ///< number of exceptions in flight at construction
};

}  // namespace fsdp
