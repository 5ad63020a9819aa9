// SPDX-License-Identifier: Apache-2.0
/// @file
/// A pass over sharded units: it runs the checked schedule between the caller's computations, and provides the weights
/// and gradients of the unit that is computed.
///
///     Pass<Stack> pass(module, sharding::Pass::train);
///     { auto use = pass.forward(0); encode(use.weight("w"), use.weight("b")); }
///     { auto use = pass.backward(0); encode_gradient(use.weight("w"), use.gradient("w"), use.gradient("b")); }
///     pass.finish();
///
/// Every rank makes the same calls in the same order, including its own collectives. The caller may use the
/// communicator for its own collectives inside and between uses: a pass issues its collectives when a Use ends, or in
/// `finish`, so that their order never depends on timing.
#pragma once

#include <cstdint>
#include <limits>
#include <optional>
#include <type_traits>

#include <tessera/fsdp/module/group_tasks.hpp>
#include <tessera/fsdp/module/sharded_module.hpp>
#include <tessera/fsdp/module/use.hpp>

namespace fsdp {

/// Callbacks before and after every task that runs, for traces. The observer measures the time itself.
struct Observer {
  void (*before)(void* state, const sharding::Task& task) = nullptr;
  void (*after)(void* state, const sharding::Task& task) = nullptr;
  void* state = nullptr;
};

/// Callbacks for the tasks that move a unit's activations (sharding::moves_activations), which the caller of a pass
/// owns. `execute` is not called for skipped micro-batches. In the rest of a forfeited pass it is called only for
/// exchanges, since other ranks wait for them. `progress`, if not null, lets transfers in flight progress.
struct ActivationWork {
  void (*execute)(void* state, const sharding::Task& task) = nullptr;
  void (*progress)(void* state) = nullptr;
  void* state = nullptr;
};

/// Whether a training pass reduces its gradients for the next step, or drops them. A pass that drops them only
/// recomputes a micro-batch and has no other effect.
enum class Reductions : std::uint8_t { made, left_out };

/// A pass over the schedule of sharded units. See the top of this file.
template <class Stack>
class [[nodiscard("a Pass that is not named is left unfinished at once; write auto pass = module.train()")]] Pass {
 public:
  using Module = ShardedModule<Stack>;
  using Device = typename Stack::Device;

  /// Begins a pass. A training pass computes all micro-batches of a step (0: as many as planned). With
  /// Reductions::left_out it computes one micro-batch, of any piece of the step, and must be planned
  /// (PassPlan::repeats). Throws LogicError if the module has no such pass, if the last pass is unfinished, or if the
  /// schedule moves activations and `activations` is omitted. `module` must outlive it.
  Pass(Module & module, sharding::Pass kind, int order = 0, int micro_batches = 0, const Observer& observer = {},
       Reductions reductions = Reductions::made, const ActivationWork& activations = {})
      : module_(module),
        tasks_(module, reductions == Reductions::made),
        cursor_(module, kind, order, micro_batches, kind == sharding::Pass::train && reductions == Reductions::made,
                activations.execute != nullptr),
        observer_(observer),
        activations_(activations) {
    if (cursor_.must_abandon()) tasks_.abandon_pass();
    cursor_.begin();
    try {
      if (cursor_.makes_step()) {
        module_.train_by(order);
        tasks_.begin_step();
      }
      tasks_.begin_pass(module_.stream().record());
      run_until_computation_or_wait();
    } catch (...) {
      cursor_.abandon();
      throw;
    }
  }
  Pass(const Pass&) = delete;
  Pass& operator=(const Pass&) = delete;
  /// Abandons the pass if an exception unwinds. Otherwise, after the destruction of an unfinished pass, the next pass
  /// and the next step throw; the pass after that starts normally.
  ~Pass() {
    if (cursor_.over()) return;
    if (cursor_.unwinds()) {
      try {
        abandon();
      } catch (...) {  // the device is broken; its next use throws
        cursor_.abandon();
      }
    } else {
      cursor_.leave();
    }
  }

  /// Return the weights and gradients of the next computation. If the requested computation is not the next one, they
  /// throw LogicError, which reports the next one, and change nothing. `enter` accepts any next computation, and throws
  /// at the end of the pass. On a temporary pass, which its Use would outlive, these calls do not compile.
  /// @{
  Use<Stack> forward(int unit)& { return enter(sharding::Action::forward, unit); }
  Use<Stack> backward(int unit)& { return enter(sharding::Action::backward, unit); }
  /// Forward and backward as one computation.
  Use<Stack> both(int unit)& { return enter(sharding::Action::loss, unit); }
  Use<Stack> enter()& {
    const sharding::Task task = cursor_.require_next();
    return enter(task.action, task.index);
  }
  template <class Unit>
  Use<Stack> forward(Unit unit)&& {
    return named(*this).forward(unit);
  }
  template <class Unit>
  Use<Stack> backward(Unit unit)&& {
    return named(*this).backward(unit);
  }
  template <class Unit>
  Use<Stack> both(Unit unit)&& {
    return named(*this).both(unit);
  }
  template <class Self = Pass>
  Use<Stack> enter()&& {
    return named<Self>(*this).enter();
  }
  /// @}
  /// Returns the next computation; nullopt at the end of the pass.
  std::optional<sharding::Task> next() const { return cursor_.next(); }

  /// Sets the queue on which the caller computes instead of the module's stream, for example the caller's CUDA stream.
  /// Two events per Use order the queues: work enqueued on `queue` inside a Use may access the Use's tensors, and later
  /// work of the library runs after it. After `finish`, work on the module's stream, such as a step that reads the
  /// loss, follows all work on `queue`. Throws LogicError inside a Use. `queue` must outlive the pass.
  void compute_on(typename Device::Queue & queue) requires(Device::asynchronous) {
    cursor_.require_outside("compute_on");
    own_queue_ = &queue;
  }

  /// For an event loop: runs at most `most` tasks, and stops before a task that would wait. Returns whether the next
  /// computation can begin, or the pass can be finished, without waiting. Throws LogicError inside a Use.
  bool poll(int most = std::numeric_limits<int>::max()) {
    cursor_.require_outside("poll", "call progress");
    run_until_computation_or_wait(most);
    if (cursor_.at_end()) return true;
    const sharding::Task& task = cursor_.task();
    return sharding::computes(task.action) &&
           (!cursor_.reads(task) || Device::asynchronous || tasks_.weights_arrived(task.index));
  }
  /// Lets collectives progress, also inside a Use: call it during long computations if the host moves the data.
  void progress() {
    tasks_.progress();
    if (activations_.progress != nullptr) activations_.progress(activations_.state);
  }

  /// Ends the pass. Throws LogicError if computations remain, or if the pass has ended. After a training pass, the
  /// gradients at rest are then complete for later work on the compute stream.
  void finish() {
    cursor_.require_finished();
    end();
  }
  /// For a rank without data for the next micro-batch: takes part in the rest of it without computing, and adds nothing
  /// to the gradients. The caller must still call its own collectives, such as the collectives of a RowTable. If steps
  /// are split into pieces (ShardedModule::step_piece), a rank without a piece must call this. Throws LogicError inside
  /// a Use, in the middle of a micro-batch, and if the rank has a piece.
  void skip() {
    const int micro_batch = cursor_.skip();
    for (auto left = next(); left.has_value() && left->micro_batch == micro_batch; left = next()) {
      run_to_computation();
      execute_or_skip(cursor_.advance());
    }
    run_until_computation_or_wait();
  }
  /// For a rank that can no longer compute: takes part in the rest of the pass without computing. All ranks skip the
  /// next step, and training continues.
  void forfeit() {
    cursor_.forfeit();
    follow_own_queue();
    for (; !cursor_.at_end(); cursor_.advance()) execute_or_skip(cursor_.task());
    end();
  }
  /// Drops the pass after an exception that all ranks caught at the same computation; the next pass starts normally.
  void abandon() {
    if (!cursor_.over()) follow_own_queue();
    cursor_.abandon();
  }

 private:
  friend class Use<Stack>;

  template <class Temporary>
  static Temporary& named(Temporary & pass) {
    static_assert(!std::is_same_v<Temporary, Temporary>,
                  "fsdp: a Pass that is not named ends with this expression, and a Use of it may not outlive it; write "
                  "auto pass = module.train(), and pass.forward(unit)");
    return pass;
  }
  void execute(const sharding::Task& task) {
    if (observer_.before != nullptr) observer_.before(observer_.state, task);
    const bool computed = cursor_.computes(task);
    if constexpr (requires { typename Device::Range; }) {
      const typename Device::Range range(cursor_.text_of(task).c_str());
      execute(task, computed);
    } else {
      execute(task, computed);
    }
    if (observer_.after != nullptr) observer_.after(observer_.state, task);
  }
  void execute(const sharding::Task& task, bool computed) {
    if (!sharding::moves_activations(task.action))
      tasks_.execute(task, computed);
    else if (cursor_.moves(task))
      activations_.execute(activations_.state, task);
  }
  void execute_or_skip(const sharding::Task& task) {
    if (!sharding::computes(task.action))
      execute(task);
    else if (cursor_.reads(task))
      tasks_.wait_for_weights(task.index);
  }
  void run_until_computation_or_wait(int most = std::numeric_limits<int>::max()) {
    for (; most > 0 && !cursor_.at_end(); cursor_.advance(), --most) {
      const sharding::Task& task = cursor_.task();
      if (sharding::computes(task.action) || tasks_.would_wait(task)) return;
      execute(task);
    }
  }
  void run_to_computation() {
    for (; !sharding::computes(cursor_.task().action); cursor_.advance()) execute(cursor_.task());
  }

  Use<Stack> enter(sharding::Action action, int unit) {
    cursor_.require_next(action, unit);
    run_to_computation();
    cursor_.begin_use();
    if (own_queue_ != nullptr) wait_for_weights();
    own_queue_follows();
    if (observer_.before != nullptr) observer_.before(observer_.state, cursor_.task());
    return {*this, cursor_.task()};
  }
  void wait_for_weights() {
    if (cursor_.must_wait_for_weights()) tasks_.wait_for_weights(cursor_.task().index);
  }
  void computed() {
    if (cursor_.over()) return;  // forfeited or abandoned inside the Use
    wait_for_weights();          // weights whose gather is in flight must not be released
    follow_own_queue();
    cursor_.end_use();
    if (observer_.after != nullptr) observer_.after(observer_.state, cursor_.task());
    cursor_.advance();
    run_until_computation_or_wait();
  }
  /// Order the caller's queue after the module's stream, and the module's stream after the caller's queue.
  /// @{
  void own_queue_follows() {
    if (own_queue_ != nullptr) own_queue_->wait(module_.stream().record());
  }
  void follow_own_queue() {
    if (own_queue_ != nullptr) module_.stream().wait(own_queue_->record());
  }
  /// @}
  void end() {
    follow_own_queue();
    for (; !cursor_.at_end(); cursor_.advance()) execute(cursor_.task());
    tasks_.end_pass();
    cursor_.end();
  }

  Module& module_;
  GroupTasks<TypesOf<Stack>> tasks_;
  PassCursor cursor_;
  Observer observer_;
  ActivationWork activations_;
  typename Device::Queue* own_queue_ = nullptr;  ///< queue on which the caller computes; null: the module's stream
};

}  // namespace fsdp
