// SPDX-License-Identifier: Apache-2.0
/// @file
/// A pass over sharded units: it runs the checked schedule between the caller's computations, and hands out the weights
/// and gradients of the unit that computes.
///
///     Pass<Stack> pass(module, sharding::Pass::train);
///     { auto use = pass.forward(0); encode(use.weight("w"), use.weight("b")); }
///     { auto use = pass.backward(0); encode_gradient(use.weight("w"), use.gradient("w"), use.gradient("b")); }
///     pass.finish();
///
/// Every rank makes the same calls in the same order, its own collectives included. The caller may use the communicator
/// for these inside and between uses: a pass issues its collectives when a Use ends, or in `finish`, never at a time
/// that depends on timing.
#pragma once

#include <cstddef>
#include <cstdint>
#include <exception>
#include <limits>
#include <optional>
#include <string>
#include <string_view>
#include <type_traits>
#include <utility>

#include <tessera/fsdp/core/error.hpp>
#include <tessera/fsdp/module/group_tasks.hpp>
#include <tessera/fsdp/module/pass_progress.hpp>
#include <tessera/fsdp/module/sharded_module.hpp>
#include <tessera/fsdp/module/use.hpp>

namespace fsdp {

/// Called before and after every task that runs; for traces. The observer takes the times.
struct Observer {
  void (*before)(void* state, const sharding::Task& task) = nullptr;
  void (*after)(void* state, const sharding::Task& task) = nullptr;
  void* state = nullptr;
};

/// Called for every task that moves a unit's activations (sharding::moves_activations), which belong to the caller of a
/// pass. Not called for what is not computed: micro-batches that are skipped; of the rest of a pass that is forfeited,
/// for exchanges alone, since other ranks wait for them.
/// `progress`, if given, lets what is on its way progress.
struct ActivationWork {
  void (*execute)(void* state, const sharding::Task& task) = nullptr;
  void (*progress)(void* state) = nullptr;
  void* state = nullptr;
};

/// Whether a training pass reduces its gradients for the step that follows, or drops them: it then computes a
/// micro-batch again and changes nothing else.
enum class Reductions : std::uint8_t { made, left_out };

/// A pass over the schedule of sharded units. See the head of this file.
template <class Stack>
class [[nodiscard("a Pass that is not named is left unfinished at once; write auto pass = module.train()")]] Pass {
 public:
  using Module = ShardedModule<Stack>;
  using Device = typename Stack::Device;

  /// Begins a pass; a training pass makes all micro-batches of a step (0: as many as planned). One whose reductions are
  /// left out makes one, of any piece of the step, and must be planned (PassPlan::repeats). Throws LogicError if the
  /// module has no such pass, or the last one is unfinished; or if the schedule moves activations and `activations` is
  /// left out. `module` must outlive it.
  Pass(Module & module, sharding::Pass kind, int order = 0, int micro_batches = 0, const Observer& observer = {},
       Reductions reductions = Reductions::made, const ActivationWork& activations = {})
      : module_(module),
        tasks_(module, reductions == Reductions::made),
        kind_(kind),
        makes_step_(kind == sharding::Pass::train && reductions == Reductions::made),
        planned_(module.planned(kind, order, micro_batches)),
        observer_(observer),
        activations_(activations),
        thrown_(std::uncaught_exceptions()) {
    require(!schedule().empty(),
            "a ShardedModule ran a pass that its purpose does not have; construct it for this one");
    if (activations.execute == nullptr) require_no_activation_work();
    begin_anew();
    try {
      if (makes_step_) {
        module_.train_by(order);
        tasks_.begin_step();
      }
      tasks_.begin_pass(module_.stream().record());
      run_until_computation_or_wait();
    } catch (...) {
      module_.progress().state = PassProgress::State::interrupted;
      throw;
    }
  }
  Pass(const Pass&) = delete;
  Pass& operator=(const Pass&) = delete;
  /// Abandons the pass if an exception unwinds. Otherwise destroying an unfinished pass makes the next pass and step
  /// throw; the pass after that begins anew.
  ~Pass() {
    if (over_) return;
    if (std::uncaught_exceptions() > thrown_) {
      try {
        abandon();
      } catch (...) {  // the device is broken; its next use throws
        module_.progress().state = PassProgress::State::interrupted;
      }
    } else {
      module_.progress() = {.state = PassProgress::State::left, .at = at_};
    }
  }

  /// Hand out the weights and gradients of the next computation. Throw LogicError, which names the next one, and change
  /// nothing unless it is this one. `enter` takes whatever is next, and throws at the end of the pass. Of a temporary
  /// pass, which its Use would outlive, they do not compile.
  /// @{
  Use<Stack> forward(int unit)& { return enter(sharding::Action::forward, unit); }
  Use<Stack> backward(int unit)& { return enter(sharding::Action::backward, unit); }
  Use<Stack> both(int unit)& { return enter(sharding::Action::loss, unit); }  ///< forward and backward in one go
  Use<Stack> enter()& {
    const std::optional<sharding::Task> task = next();
    require(task.has_value(), "pass: nothing is left to compute");
    return enter(task->action, task->index);
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
  /// The next computation; nothing at the end of the pass.
  std::optional<sharding::Task> next() const {
    for (std::size_t i = at_; i < schedule().size(); ++i)
      if (sharding::computes(schedule()[i].action)) return schedule()[i];
    return std::nullopt;
  }

  /// Sets the queue on which the caller computes, if not the module's stream: its own CUDA stream, say. Two events per
  /// Use order the queues: work enqueued on `queue` inside of a Use may access the Use's tensors, and the library's
  /// later work follows it. After `finish`, work on the module's stream, such as a step that reads the loss, follows
  /// all work on `queue`. Throws LogicError inside of a Use. `queue` must outlive the pass.
  void compute_on(typename Device::Queue & queue) requires(Device::asynchronous) {
    require_under_way();
    require_outside("compute_on");
    own_queue_ = &queue;
  }

  /// For an event loop: runs at most `most` tasks, up to one that would wait. Returns whether the next computation can
  /// begin, or the pass be finished, without waiting. Throws LogicError inside of a Use.
  bool poll(int most = std::numeric_limits<int>::max()) {
    require_under_way();
    require_outside("poll", "call progress");
    run_until_computation_or_wait(most);
    if (at_ == schedule().size()) return true;
    const sharding::Task& task = schedule()[at_];
    return sharding::computes(task.action) &&
           (!reads(task) || Device::asynchronous || tasks_.weights_arrived(task.index));
  }
  /// Lets collectives progress, inside of a Use too: call it in long computations where the host moves the data.
  void progress() {
    tasks_.progress();
    if (activations_.progress != nullptr) activations_.progress(activations_.state);
  }

  /// Ends the pass. Throws LogicError if something is left to compute, or the pass is over. After a training pass, the
  /// gradients at rest are then complete for work that follows on the compute stream.
  void finish() {
    require_under_way();
    require_outside("finish");
    if (const auto left = next())
      throw LogicError(message("pass: finished before ", text(*left), " of micro-batch ", left->micro_batch));
    end();
  }
  /// For a rank without data for the next micro-batch: takes part in the rest of it without computing, and adds nothing
  /// to the gradients. The caller must still make its own collectives, such as those of a RowTable. Where steps are cut
  /// into pieces (ShardedModule::step_piece), a rank without a piece must call this. Throws LogicError inside of a Use,
  /// in the middle of a micro-batch, and if the rank has a piece.
  void skip() {
    require_under_way();
    require_outside("skip");
    const std::optional<sharding::Task> first = next();
    require(first.has_value(), "pass: nothing is left to compute");
    const int micro_batch = first->micro_batch;
    require(computed_ != micro_batch, "pass: micro-batch ", micro_batch,
            " is skipped, and some of it was computed already; forfeit the pass");
    require(!makes_step_ || module_.step_pieces() == 0 || !module_.step_piece(micro_batch), "pass: micro-batch ",
            micro_batch, " is skipped, and this rank has a piece of the step to compute in it");
    skipped_ = micro_batch;
    for (auto left = first; left.has_value() && left->micro_batch == micro_batch; left = next()) {
      for (; !sharding::computes(schedule()[at_].action); ++at_) execute(schedule()[at_]);
      execute_or_pass_over(schedule()[at_++]);
    }
    run_until_computation_or_wait();
  }
  /// For a rank that can no longer compute: takes part in the rest of the pass without computing. All ranks skip the
  /// step that follows, and training goes on.
  void forfeit() {
    require_under_way();
    inside_ = false;
    forfeited_ = true;
    follow_own_queue();
    if (makes_step_) module_.progress().forfeited = true;
    for (; at_ < schedule().size(); ++at_) execute_or_pass_over(schedule()[at_]);
    end();
  }
  /// Drops the pass after an exception that all ranks caught at the same computation; the next one begins anew.
  void abandon() {
    if (!over_) follow_own_queue();
    over_ = true;
    inside_ = false;
    module_.progress().state = PassProgress::State::interrupted;
  }

 private:
  friend class Use<Stack>;

  const sharding::Schedule& schedule() const { return planned_.schedule; }
  bool reads(const sharding::Task& task) const { return planned_.problem.uses_weights(task); }
  bool writes(const sharding::Task& task) const { return planned_.problem.writes_gradients(task); }
  /// A task as the caller wrote it: Action::loss is requested by `both`.
  std::string text(const sharding::Task& task) const {
    return task.action == sharding::Action::loss ? "both " + name_of(task.index) : text_of(task, module_.names());
  }
  void require_under_way() const { require(!over_, "pass: it is over; begin another one"); }
  void require_outside(std::string_view what, const char* then = "end that use first, by done() or its scope") const {
    if (inside_)
      throw LogicError(message("pass: ", what, " inside of a use, that of ", text(schedule()[at_]), "; ", then));
  }
  template <class Temporary>
  static Temporary& named(Temporary & pass) {
    static_assert(!std::is_same_v<Temporary, Temporary>,
                  "fsdp: a Pass that is not named ends with this expression, and a Use of it may not outlive it; write "
                  "auto pass = module.train(), and pass.forward(unit)");
    return pass;
  }
  const std::string& name_of(int unit) const { return module_.names().units[static_cast<std::size_t>(unit)]; }

  void begin_anew() {
    using State = PassProgress::State;
    if (const auto& without = module_.without_values(); !without.empty())
      throw LogicError(message("pass: ", without.front(), without.size() == 1 ? " has" : " and others have",
                               " no values yet; initialize, load or set them first"));
    PassProgress& progress = module_.progress();
    require(progress.state != State::running, "pass: another one is under way; finish, forfeit or abandon it first");
    if (progress.state == State::left) {
      progress.state = State::interrupted;
      throw LogicError(message("pass: the one before was left unfinished, ", progress.at,
                               " tasks after its begin; finish it, or forfeit or abandon it"));
    }
    if (progress.state == State::interrupted) tasks_.abandon_pass();
    const bool has_gradients = progress.has_gradients && !makes_step_;
    progress = {
        .state = State::running, .has_gradients = has_gradients, .forfeited = has_gradients && progress.forfeited};
  }

  void require_no_activation_work() const {
    for (const sharding::Task& task : schedule())
      require(!sharding::moves_activations(task.action), "pass: ", text(task),
              " moves activations, which is the caller's work; give ActivationWork, or leave out what asks for it "
              "(UnitOptions::offload_inputs, Unit::stages)");
  }
  void execute(const sharding::Task& task) {
    if (observer_.before != nullptr) observer_.before(observer_.state, task);
    const bool computed = task.micro_batch != skipped_;
    if constexpr (requires { typename Device::Range; }) {
      const typename Device::Range range(text_of(task, module_.names()).c_str());
      execute(task, computed);
    } else {
      execute(task, computed);
    }
    if (observer_.after != nullptr) observer_.after(observer_.state, task);
  }
  void execute(const sharding::Task& task, bool computed) {
    if (!sharding::moves_activations(task.action))
      tasks_.execute(task, computed);
    else if (computed && (!forfeited_ || task.action == sharding::Action::exchange))
      activations_.execute(activations_.state, task);
  }
  void execute_or_pass_over(const sharding::Task& task) {
    if (!sharding::computes(task.action))
      execute(task);
    else if (reads(task))
      tasks_.wait_for_weights(task.index);
  }
  void run_until_computation_or_wait(int most = std::numeric_limits<int>::max()) {
    for (; most > 0 && at_ < schedule().size(); ++at_, --most) {
      const sharding::Task& task = schedule()[at_];
      if (sharding::computes(task.action) || tasks_.would_wait(task)) return;
      execute(task);
    }
  }

  Use<Stack> enter(sharding::Action action, int unit) {
    require_under_way();
    if (inside_) require_outside(text({.action = action, .index = unit}));
    const std::optional<sharding::Task> found = next();
    require(found.has_value(), "pass: nothing is left to compute");
    if (found->action != action || found->index != unit)
      throw LogicError(message("pass: the next computation is ", text(*found), " of micro-batch ", found->micro_batch,
                               ", not ", text({.action = action, .index = unit})));
    if (makes_step_ && !module_.step_piece(found->micro_batch))
      throw LogicError(message("pass: of the step's ", module_.step_pieces(),
                               " pieces this rank has none in micro-batch ", found->micro_batch,
                               " (ShardedModule::step_piece); call skip"));
    for (; !sharding::computes(schedule()[at_].action); ++at_) execute(schedule()[at_]);
    inside_ = true;
    computed_ = found->micro_batch;
    arrived_ = !reads(*found);
    if (own_queue_ != nullptr) wait_for_weights();
    own_queue_follows();
    if (observer_.before != nullptr) observer_.before(observer_.state, schedule()[at_]);
    return {*this, schedule()[at_]};
  }
  void wait_for_weights() {
    if (!std::exchange(arrived_, true)) tasks_.wait_for_weights(schedule()[at_].index);
  }
  void computed() {
    if (over_) return;   // forfeited or abandoned inside of the use
    wait_for_weights();  // a gather in flight may not be released
    follow_own_queue();
    inside_ = false;
    if (observer_.after != nullptr) observer_.after(observer_.state, schedule()[at_]);
    ++at_;
    run_until_computation_or_wait();
  }
  /// Order the caller's queue after the module's stream, and the other way round.
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
    for (; at_ < schedule().size(); ++at_) execute(schedule()[at_]);
    tasks_.end_pass();
    over_ = true;
    PassProgress& progress = module_.progress();
    progress.state = PassProgress::State::idle;
    if (makes_step_) progress.has_gradients = true;
  }

  Module& module_;
  GroupTasks<Stack> tasks_;
  sharding::Pass kind_;
  bool makes_step_;  ///< a step follows, of this pass's gradients
  const PlannedPass& planned_;
  Observer observer_;
  ActivationWork activations_;
  typename Device::Queue* own_queue_ = nullptr;  ///< where the caller computes; null: on the module's stream
  int thrown_;                                   ///< exceptions in flight at construction
  std::size_t at_ = 0;                           ///< number of the next task
  int computed_ = -1;                            ///< micro-batch of the last computation
  int skipped_ = -1;                             ///< micro-batch that was skipped last
  bool inside_ = false;                          ///< whether a Use is alive
  bool arrived_ = false;                         ///< whether the weights of this Use have been waited for
  bool forfeited_ = false;
  bool over_ = false;
};

}  // namespace fsdp
