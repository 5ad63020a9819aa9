// SPDX-License-Identifier: Apache-2.0
/// @file
/// Callbacks of objects that watch an Executor: the parts of a training step, its tasks, and the streams that they
/// write. StepWatch (tessera/fsdp/verification/step_watch.hpp) is such an object.
#pragma once

#include <cstdint>
#include <vector>

#include <tessera/fsdp/core/lists.hpp>
#include <tessera/fsdp/core/tensor.hpp>
#include <tessera/fsdp/execution/step_size.hpp>
#include <tessera/fsdp/sharding/schedule.hpp>

namespace fsdp {

/// The kinds of training passes: of a step, of a step whose first micro-batch is to be verified, and of a repetition,
/// which only recomputes a micro-batch (Executor::repeat).
enum class TrainingPass : std::uint8_t { step, verified_step, repetition };

/// Callbacks, each with `state` as its first argument; null if nothing is to be called. They may enqueue work on the
/// compute stream. Replays of a captured step do not call them.
template <class Compute>
struct StepHooks {
  void (*begin)(void* state, TrainingPass pass) = nullptr;  ///< before a training pass
  /// Before and after every task that runs, as those of an Observer.
  /// @{
  void (*before)(void* state, const sharding::Task& task) = nullptr;
  void (*after)(void* state, const sharding::Task& task) = nullptr;
  /// @}
  /// After a task of a training pass, also of a repetition, is enqueued, with the stream that it writes: the residual
  /// stream [T, H] after forward, its gradient after backward. The tensor is valid during the call.
  void (*see)(void* state, const sharding::Task& task, Tensor<const Compute> values) = nullptr;
  void (*after_pass)(void* state) = nullptr;    ///< between a step's pass and its update
  void (*after_update)(void* state) = nullptr;  ///< after the optimizer's update
  void* state = nullptr;
  bool watches_steps = false;  ///< whether steps are digested as the size asks (StepSize::digests, verifies)
};

/// The hooks of an executor, which are called in the order in which they were added.
template <class Compute>
class StepHookList {
 public:
  using Hooks = StepHooks<Compute>;

  void add(const Hooks& hooks) { list_.push_back(hooks); }  ///< appends to the list
  bool empty() const { return list_.empty(); }              ///< whether there are none
  /// Whether one of them watches steps.
  bool watches_steps() const {
    bool watches = false;
    for (const Hooks& hooks : list_) watches = watches || hooks.watches_steps;
    return watches;
  }
  /// Calls one callback of all hooks, such as &StepHooks<Compute>::begin.
  template <class Callback, class... Args>
  void call(Callback Hooks::*callback, const Args&... args) const {
    for (const Hooks& hooks : list_)
      if (hooks.*callback != nullptr) (hooks.*callback)(hooks.state, args...);
  }

 private:
  std::vector<Hooks> list_;
};

/// Throw LogicError if steps are to be digested or verified: in a dry run that has no code for it, and by an executor
/// that nothing watches. The error names the header and the line to add.
/// @{
void check_unwatched_plan(const StepSize& size);
void check_watched(const StepSize& size, bool watches_steps);
/// @}

}  // namespace fsdp

// Compiled into the library.
FSDP_LIST(fsdp::StepHooks<float>)
FSDP_LIST(fsdp::StepHooks<fsdp::bf16>)
