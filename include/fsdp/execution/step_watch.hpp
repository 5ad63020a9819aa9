// SPDX-License-Identifier: Apache-2.0
/// @file
/// Observes an Executor's training passes: digests steps and verified micro-batches, and calls a probe and the observer
/// of the executor's owner.
#pragma once

#include <optional>

#include <tessera/fsdp/core/error.hpp>
#include <tessera/fsdp/core/has_member.hpp>
#include <tessera/fsdp/core/tensor.hpp>
#include <tessera/fsdp/execution/run_shape.hpp>
#include <tessera/fsdp/execution/sharded_model.hpp>
#include <tessera/fsdp/execution/step_digests.hpp>
#include <tessera/fsdp/execution/stream_probe.hpp>
#include <tessera/fsdp/module/pass.hpp>
#include <tessera/fsdp/sharding/strategies.hpp>

namespace fsdp {

/// Throws InputError if a run verifies steps and its strategy does not cut steps into pieces.
inline void check_verifies(const RunShape& shape, bool has_pieces) {
  require<InputError>(has_pieces || !shape.verifies, "verification: each rank computes a piece of another one again, ",
                      "and this strategy does not cut steps into pieces; take Reproducible");
}

/// Belongs to one Executor, which reports the start of each pass and the output of each computation.
template <class Model>
class StepWatch {
 public:
  using Module = ShardedModel<Model>;
  using Compute = typename Module::Compute;
  /// Whether steps can be verified: each rank computes pieces of a step, and another rank can recompute them.
  static constexpr bool may_verify = may_have_pieces<typename Model::Stack::Sharding>;

  /// `module` must outlive it. Throws InputError if the module is planned to verify and its strategy does not cut steps
  /// into pieces.
  StepWatch(Module& module, const Observer& next) : next_(next) {
    if (module.shape().digests) steps_.emplace(module);
    if constexpr (may_verify) {
      if (module.shape().verifies) first_.emplace(module), repeated_.emplace(module);
    } else {
      check_verifies(module.shape(), false);
    }
  }
  StepWatch(const StepWatch&) = delete;
  StepWatch& operator=(const StepWatch&) = delete;

  /// Begin the pass of a step (`verified`: whether its first micro-batch is digested), or the pass of a repetition.
  /// @{
  void begin_step(bool verified) {
    bool may = false;
    if constexpr (may_verify) may = first_.has_value();
    require(!verified || may, "train: a step is to be verified, of a module that is not planned to verify");
    if constexpr (may_verify) watched_ = verified ? &*first_ : nullptr;
    is_step_ = true;
    if (steps_) steps_->begin();
    if constexpr (may_verify)
      if (watched_ != nullptr) watched_->begin();
  }
  void begin_repetition() {
    is_step_ = false;
    if constexpr (may_verify) {
      require(repeated_.has_value(), "repeat: the module is not planned to verify");
      watched_ = &*repeated_;
      watched_->begin();
    } else {
      require(false, "repeat: the module is not planned to verify");
    }
  }
  /// @}
  /// Receives the output of a computation of the current pass.
  void see(const sharding::Task& task, Tensor<const Compute> values) {
    if (is_step_ && steps_) steps_->add_stream(task, values);
    if (is_step_ && probe_.see != nullptr) probe_.see(probe_.state, task, values);
    if constexpr (may_verify)
      if (watches(task)) watched_->add_stream(task, values);
  }
  /// Returns the observer to pass to the Pass.
  Observer observer() {
    if constexpr (may_verify)
      if (first_) return {.before = before, .after = after, .state = this};
    return next_;
  }

  /// Returns the digests of the step if the module is planned for them (RunShape::digests), else nullptr.
  StepDigests<Model>* steps() { return steps_ ? &*steps_ : nullptr; }
  /// Return the digests of the first micro-batch of a verified step, and of the micro-batch that was repeated last.
  /// @{
  PieceDigests<Model>& first() { return *first_; }
  PieceDigests<Model>& repeated() { return *repeated_; }
  /// @}
  /// Calls a probe with the streams of all later steps. The probe needs no planned memory. Replays of a captured pass
  /// do not call it.
  void show_streams(const StreamProbe<Compute>& probe) { probe_ = probe; }

 private:
  bool watches(const sharding::Task& task) const { return watched_ != nullptr && task.micro_batch == 0; }
  /// Digests a gradient before it is reduced.
  static void before(void* self, const sharding::Task& task) {
    StepWatch& own = *static_cast<StepWatch*>(self);
    if (own.next_.before != nullptr) own.next_.before(own.next_.state, task);
    if (task.action == sharding::Action::reduce && own.watches(task)) own.watched_->add_gradient(task.index);
  }
  static void after(void* self, const sharding::Task& task) {
    StepWatch& own = *static_cast<StepWatch*>(self);
    if (own.next_.after != nullptr) own.next_.after(own.next_.state, task);
  }

  Observer next_;
  StreamProbe<Compute> probe_;
  std::optional<StepDigests<Model>> steps_;
  OnlyIf<may_verify, std::optional<PieceDigests<Model>>> first_, repeated_;
  PieceDigests<Model>* watched_ = nullptr;  ///< digests of the pass's first micro-batch; null if it is not digested
  bool is_step_ = false;                    ///< whether the pass belongs to a step and is not a repetition
};

}  // namespace fsdp
