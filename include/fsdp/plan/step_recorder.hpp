// SPDX-License-Identifier: Apache-2.0
/// @file
/// Records the operations of a dry run's training step through the Observer of its pass.
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <type_traits>
#include <vector>

#include <tessera/comm/monitor.hpp>
#include <tessera/fsdp/core/dtype.hpp>
#include <tessera/fsdp/core/function_ref.hpp>
#include <tessera/fsdp/device/operation.hpp>
#include <tessera/fsdp/module/pass.hpp>
#include <tessera/fsdp/plan/step_record.hpp>
#include <tessera/fsdp/sharding/problem.hpp>
#include <tessera/fsdp/sharding/schedule.hpp>
#include <tessera/fsdp/sharding/strategy.hpp>

namespace fsdp::plan {

/// The sources of a recorder: counters of a module's device, communicators and host memory. They must outlive the
/// recorder.
struct Watched {
  /// A communicator; its monitor must be recording.
  struct Communicator {
    Axis axis = Axis::world;
    Members members = {};
    const comm::Monitor* monitor = nullptr;
  };
  const sharding::Problem* problem = nullptr;    ///< problem of the pass
  const sharding::Schedule* schedule = nullptr;  ///< schedule of the pass with assigned memory slots
  const sharding::Names* names = nullptr;
  DType compute = DType::f32;  ///< type of activations
  bool optimizer_in_host_memory = false;
  device::Counters* counters = nullptr;
  std::array<Communicator, axis_count> communicators = {};
  std::size_t axes = 0;                                   ///< number of `communicators` in use
  const void* inputs = nullptr;                           ///< arena of inputs in host memory
  std::int64_t (*used_by_inputs)(const void*) = nullptr;  ///< returns the bytes in use in `inputs`
  const void* activations = nullptr;                      ///< arena of the step's activations
  std::int64_t (*used_by_activations)(const void*) = nullptr;
};

/// Records tasks, and operations outside of tasks, into a StepRecord.
class StepRecorder {
 public:
  /// Records nothing if `record` is null; otherwise `watch` must be called first. `record` must outlive this object.
  explicit StepRecorder(StepRecord* record);
  StepRecorder(const StepRecorder&) = delete;
  StepRecorder& operator=(const StepRecorder&) = delete;
  ~StepRecorder();

  /// Sets the sources, and begins the record with the data that are known before the step.
  void watch(const Watched& watched);
  /// Returns the observer for the Executor; `set_active` starts and stops the recording of its tasks, for one pass.
  /// @{
  Observer observer();
  void set_active(bool active) { active_ = active; }
  /// @}
  /// Calls f() and records its operations into `member`.
  void record(RecordedWork StepRecord::*member, FunctionRef<void()> f);

 private:
  void begin();
  RecordedWork end();

  StepRecord* record_;
  Watched watched_;
  bool active_ = false;
  device::Counters counters_;                           ///< counters at the last `begin`
  std::vector<device::MatmulRecord> matmuls_;           ///< matmuls since the last `begin`
  std::vector<device::MatmulRecord>* outer_ = nullptr;  ///< list of matmuls in use before `begin`; may be nullptr
  std::vector<std::size_t> calls_;                      ///< number of calls of each communicator at the last `begin`
  std::int64_t used_ = 0;
};

/// Returns the sources of a ShardedModule in a dry run, or of a ShardedModel, which also has inputs in host memory.
/// `order`, `micro_batches`: those of the recorded pass, as for ShardedModule::planned.
template <class Module>
Watched watched(Module& module, int order = 0, int micro_batches = 0) {
  using Stack = typename Module::Stack;
  using Activations = std::remove_reference_t<decltype(module.arena())>;
  const auto& planned = module.planned(sharding::Pass::train, order, micro_batches);
  Watched all{.problem = &planned.problem,
              .schedule = &planned.schedule,
              .names = &module.names(),
              .compute = dtype_of<typename Module::Compute>(),
              .optimizer_in_host_memory = offloads_optimizer_of<typename Stack::Sharding>,
              .counters = &module.stream().counters,
              .used_by_inputs = [](const void*) { return std::int64_t{0}; },
              .activations = &module.arena(),
              .used_by_activations = [](const void* arena) { return static_cast<const Activations*>(arena)->used(); }};
  if constexpr (requires { module.offload_arena(); }) {
    using Inputs = std::remove_reference_t<decltype(module.offload_arena())>;
    all.inputs = &module.offload_arena();
    all.used_by_inputs = [](const void* arena) { return static_cast<const Inputs*>(arena)->used(); };
  }
  const auto communicators = module.communicators();
  const bool mesh = module.has_groups();
  const int shards = communicators[mesh ? 2 : 0]->size();
  for (auto* const communicator : communicators) {
    // The sequence axis comes last
    const Axis axis = all.axes == 0 || mesh ? static_cast<Axis>(all.axes) : Axis::sequence;
    all.communicators[all.axes++] = {
        .axis = axis,
        .members = {.ranks = communicator->size(), .stride = axis == Axis::across ? shards : 1},
        .monitor = &communicator->monitor()};
  }
  return all;
}

}  // namespace fsdp::plan
