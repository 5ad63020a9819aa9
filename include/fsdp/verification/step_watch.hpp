// SPDX-License-Identifier: Apache-2.0
/// @file
/// Watches an Executor's training passes: digests steps and verified micro-batches.
///
///     train::Training<Model, Optimizer, WatchedSteps> training(communicator, model, {..., .digests = true});
///     StepWatch watch(training.module(), training.executor());
///     training.step(batches, {.lr = 1e-3});
///     const std::vector<StepDigest> digests = watch.steps()->collect();
#pragma once

#include <optional>

#include <tessera/fsdp/core/error.hpp>
#include <tessera/fsdp/core/has_member.hpp>
#include <tessera/fsdp/core/tensor.hpp>
#include <tessera/fsdp/execution/executor.hpp>
#include <tessera/fsdp/execution/sharded_model.hpp>
#include <tessera/fsdp/execution/step_hooks.hpp>
#include <tessera/fsdp/sharding/strategy.hpp>
#include <tessera/fsdp/verification/step_digests.hpp>

namespace fsdp {

/// Throws InputError if a run verifies steps and its strategy does not cut steps into pieces.
void check_verifies(const StepSize& size, bool has_pieces);

namespace detail {

/// The part of StepWatch that all stacks with the same ModuleTypes share. `Module`: a MemoryOf.
template <class Module, bool verifies>
class StepWatchOf {
 public:
  using Compute = typename Module::Compute;
  /// Whether steps can be verified: each rank computes pieces of a step, and another rank can recompute them.
  static constexpr bool may_verify = verifies;

  StepWatchOf(const StepWatchOf&) = delete;
  StepWatchOf& operator=(const StepWatchOf&) = delete;

  /// Returns the digests of the step if the module is planned for them, else nullptr.
  StepDigestsOf<Module>* steps() { return steps_ ? &*steps_ : nullptr; }
  /// Return the digests of the first micro-batch of a verified step, and of the micro-batch that was repeated last.
  /// @{
  PieceDigestsOf<Module>& first() { return *first_; }
  PieceDigestsOf<Module>& repeated() { return *repeated_; }
  /// @}

 protected:
  using Task = sharding::Task;

  /// See StepWatch. `size`: the module's.
  StepWatchOf(Module& module, const StepSize& size) {
    require(size.digests || size.verifies,
            "step watch: the module is planned for neither digests nor verification; set StepSize::digests or "
            "StepSize::verifies, or make no StepWatch");
    check_verifies(size, may_verify);
    if (size.digests) steps_.emplace(module);
    if constexpr (may_verify)
      if (size.verifies) first_.emplace(module), repeated_.emplace(module);
  }

  StepHooks<Compute> hooks() {
    StepHooks<Compute> hooks{
        .begin = [](void* self, TrainingPass pass) { static_cast<StepWatchOf*>(self)->begin(pass); },
        .see = [](void* self, const Task& task,
                  Tensor<const Compute> values) { static_cast<StepWatchOf*>(self)->see(task, values); },
        .state = this,
        .watches_steps = true};
    if constexpr (may_verify)
      if (first_)
        hooks.before = [](void* self, const Task& task) { static_cast<StepWatchOf*>(self)->add_gradient(task); };
    if (steps_) {
      hooks.after_pass = [](void* self) { static_cast<StepWatchOf*>(self)->steps_->add_gradients(); };
      hooks.after_update = [](void* self) { static_cast<StepWatchOf*>(self)->steps_->add_weights(); };
    }
    return hooks;
  }

 private:
  void begin(TrainingPass pass) {
    is_step_ = pass != TrainingPass::repetition;
    if (is_step_ && steps_) steps_->begin();
    if constexpr (may_verify) {
      watched_ = nullptr;
      if (pass == TrainingPass::verified_step) watched_ = &*first_;
      if (pass == TrainingPass::repetition) watched_ = &*repeated_;
      if (watched_ != nullptr) watched_->begin();
    }
  }
  void see(const Task& task, Tensor<const Compute> values) {
    if (is_step_ && steps_) steps_->add_stream(task, values);
    if constexpr (may_verify)
      if (watches(task)) watched_->add_stream(task, values);
  }
  /// Digests a gradient before it is reduced.
  void add_gradient(const Task& task) {
    if constexpr (may_verify)
      if (task.action == sharding::Action::reduce && watches(task)) watched_->add_gradient(task.index);
  }
  bool watches(const Task& task) const { return watched_ != nullptr && task.micro_batch == 0; }

  std::optional<StepDigestsOf<Module>> steps_;
  OnlyIf<may_verify, std::optional<PieceDigestsOf<Module>>> first_, repeated_;
  PieceDigestsOf<Module>* watched_ = nullptr;  ///< digests of the pass's first micro-batch; null if it is not digested
  bool is_step_ = false;                       ///< whether the pass belongs to a step and is not a repetition
};

}  // namespace detail

/// Digests what the module is planned for: steps (StepSize::digests), and verified micro-batches (StepSize::verifies).
template <class Model>
class StepWatch : public detail::StepWatchOf<MemoryOf<Model>, may_have_pieces<typename Model::Stack::Sharding>> {
 public:
  using Module = ShardedModel<Model>;

  /// Watches all later passes of the executor, and must outlive them. Throws LogicError if the module is planned for
  /// neither, InputError if it is planned to verify and its strategy does not cut steps into pieces.
  StepWatch(Module& module, Executor<Model>& executor) : StepWatch::StepWatchOf(module, module.size()) {
    executor.watch(this->hooks());
  }
};

}  // namespace fsdp
