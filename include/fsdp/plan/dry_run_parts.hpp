// SPDX-License-Identifier: Apache-2.0
/// @file
/// The parts of dry runs: the Meta instance of a model, which they compute with; the ranks that may need the most
/// memory; and the recorder of a training step.
///
/// The Meta instances of the library's Llama are compiled into the library, four for each device and precision: one for
/// each placement and memory of optimizer state. They can cut steps into pieces and share sequences. That of any other
/// model can do what its stack can.
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <span>
#include <type_traits>
#include <vector>

#include <tessera/comm/monitor.hpp>
#include <tessera/comm/simulated.hpp>
#include <tessera/fsdp/buffer/layout.hpp>
#include <tessera/fsdp/core/dtype.hpp>
#include <tessera/fsdp/core/function_ref.hpp>
#include <tessera/fsdp/device/meta.hpp>
#include <tessera/fsdp/device/operation.hpp>
#include <tessera/fsdp/module/module_plan.hpp>
#include <tessera/fsdp/module/pass.hpp>
#include <tessera/fsdp/module/stack.hpp>
#include <tessera/fsdp/module/units.hpp>
#include <tessera/fsdp/optim/optimizer.hpp>
#include <tessera/fsdp/plan/plan.hpp>
#include <tessera/fsdp/precision/policies.hpp>
#include <tessera/fsdp/sharding/problem.hpp>
#include <tessera/fsdp/sharding/schedule.hpp>
#include <tessera/fsdp/sharding/sequence.hpp>
#include <tessera/fsdp/sharding/strategy.hpp>

namespace fsdp {

template <class StackT>
class Llama;  // tessera/fsdp/models/llama.hpp

namespace plan {
namespace detail {

template <class T, class... List>
inline constexpr bool is_one_of = (std::is_same_v<T, List> || ...);

/// Whether steps may be cut into pieces in the library's instances with this placement: no strategy of the library
/// cuts them where optimizer state is sharded across groups.
template <class Across>
inline constexpr bool library_has_pieces = std::is_same_v<Across, buffer::Replicate>;

template <class Across, bool offloads>
using MetaSharding = Described<Across, offloads, library_has_pieces<Across>>;
template <class Target, class Across, bool offloads, class Precision>
using MetaLlama = Llama<Stack<MetaSharding<Across, offloads>, comm::Simulated<device::MetaOf<Target>>, Precision,
                              tiling::Untiled, Ulysses>>;

/// Whether the library has the dry runs of a Meta instance: see FSDP_META_LLAMA in tessera/fsdp/plan/dry_run.hpp.
template <class MetaModel>
inline constexpr bool is_in_library = false;
template <class Across, bool offloads, class Target, class Precision>
inline constexpr bool
    is_in_library<Llama<Stack<Described<Across, offloads, library_has_pieces<Across>>,
                              comm::Simulated<device::MetaOf<Target>>, Precision, tiling::Untiled, Ulysses>>> =
        is_one_of<Target, device::Cpu, device::Cuda>&& is_one_of<Precision, Fp32, Bf16Mixed, Bf16Wire<Bf16Mixed>>;

template <class Model, class Optimizer>
struct MetaTwinOf {
  using Stack = typename Model::Stack;
  using Across = OptimizerPlacement<typename Stack::Sharding>;
  static constexpr bool has_pieces = may_have_pieces<typename Stack::Sharding> || library_has_pieces<Across>;
  using InLibrary = typename Model::template On<MetaStack<Stack, has_pieces, Ulysses>>;
  using Own = typename Model::template On<MetaStack<Stack>>;
  /// Ulysses, or a policy by which no ranks share sequences.
  static constexpr bool has_sequences = std::is_same_v<typename Stack::Sequence, Ulysses> || !Stack::Sequence::shards;
  static constexpr bool in_library =
      std::is_same_v<Optimizer, optim::RunTimeOptimizer> && has_sequences && is_in_library<InLibrary>;
  using Type = std::conditional_t<in_library, InLibrary, Own>;
};

}  // namespace detail

/// The same model on a device without storage that counts for the model's device; one type for all tilings, and for all
/// strategies with the same placement of optimizer state.
template <class Model, class Optimizer = optim::RunTimeOptimizer>
using MetaTwin = typename detail::MetaTwinOf<Model, Optimizer>::Type;

/// Number of rows of activations of each rank; empty if it is the same on all ranks.
using RowsOfRanks = std::span<const std::int64_t>;

/// Returns ranks that include the one with the most memory, whatever the bytes per element of each kind and per row. A
/// rank is omitted if another rank has at least as much of everything; of equal ranks the first is returned.
/// `states`: as `rows`, the bytes of each rank's states, if elements do not determine them (state_bytes_of_ranks).
std::vector<int> most_loaded_ranks(GroupList groups, int ranks, RowsOfRanks rows = {}, RowsOfRanks states = {});

/// Returns the first rank of each distinct load, for optimizers of whole tensors. A load consists of the elements at
/// rest, the rows, and the role and shape of each tensor that the rank steps.
std::vector<int> one_of_each_load(GroupList groups, int ranks, RowsOfRanks rows = {});

/// Returns whether all ranks store the same number of elements at rest and have the same number of rows.
bool loads_ranks_alike(GroupList groups, int ranks, RowsOfRanks rows = {}, RowsOfRanks states = {});

/// Returns the bytes of optimizer states of each rank; empty if all states are float, so that the numbers of elements
/// determine them. `states`: returns the states of a parameter.
std::vector<std::int64_t> state_bytes_of_ranks(GroupList groups, int ranks,
                                               FunctionRef<std::span<const optim::StateSpec>(const Parameter&)> states);

namespace detail {

/// Returns the number of rows of a full micro-batch that each rank computes; empty if it is the same on all ranks.
std::vector<std::int64_t> rows_of_ranks(const Request& request);

/// Returns state_bytes_of_ranks of a module; empty unless it trains.
template <class Module, class Optimizer>
std::vector<std::int64_t> state_bytes_of(const Module& module, const Request& request, const Optimizer& optimizer) {
  if (request.purpose != Purpose::train) return {};
  return state_bytes_of_ranks(
      module.group_list(), request.ranks,
      [&](const Parameter& parameter) -> std::span<const optim::StateSpec> { return optimizer.states(parameter); });
}

/// Returns the ranks that may need the most memory. With an optimizer of whole tensors, the rank with the least memory
/// at rest may need the most scratch memory; then one rank of each load is returned.
template <class Module, class Optimizer>
std::vector<int> ranks_to_try(const Module& module, const Request& request, const Optimizer& optimizer) {
  const std::vector<const GroupTensors*> groups = module.group_list();
  if (request.purpose != Purpose::train || optimizer.grain() == optim::Grain::elements || module.whole_at_rest())
    return most_loaded_ranks(groups, request.ranks, rows_of_ranks(request), state_bytes_of(module, request, optimizer));
  return one_of_each_load(groups, request.ranks, rows_of_ranks(request));
}

/// Returns the largest of the plans of `ranks`, for a request whose rank is most_loaded. `plan_of` returns the plan of
/// the request for one rank.
Plan largest_plan(const Request& request, const std::vector<int>& ranks, FunctionRef<Plan(const Request&)> plan_of);

/// Returns the sums over the groups of each of several parts, which differ in strategy or in the element type of their
/// weights; nothing if all groups have the same. `of_groups`: the type and the bytes at rest, by group; `calls`: the
/// collectives of a step, whose labels have the groups.
std::vector<PartPlan> sums_of_parts(const ModuleState& module, const std::vector<PartPlan>& of_groups,
                                    std::span<const comm::Record> calls);

}  // namespace detail

/// Returns the memory and the traffic of each strategy and element type of a module whose communicators have recorded a
/// step, and whose optimizer is `optimizer`; nothing if it has one of both.
template <class Module, class Optimizer>
std::vector<PartPlan> plans_of_parts(Module& module, const Optimizer& optimizer) {
  std::vector<PartPlan> groups;
  const auto add = [&]<class Group>(const Group& group) {
    PartPlan& plan = groups.emplace_back();
    plan.dtype = dtype_of<typename Group::Compute>();
    plan.weight_bytes = group.main_bytes() + group.model_bytes() + group.kept_bytes();
    plan.gradient_bytes = group.gradient_bytes();
    if (!group.facts().trainable) return;
    std::span<const optim::StateSpec> states = optimizer.optimizer().states(group.parameters().front());
    std::int64_t left = group.main_size();
    for (const auto& shard : module.shards()) {
      if (shard.group + 1 != std::ssize(groups)) continue;
      states = optimizer.specs(shard);
      for (const optim::StateSpec& state : states) plan.optimizer_bytes += optim::resting_bytes(state, shard.count());
      left -= shard.count();
    }
    for (const optim::StateSpec& state : states)  // the padding
      if (state.format->type == DType::f32) plan.optimizer_bytes += left * std::int64_t{sizeof(float)};
  };
  for (const auto& any : module.groups()) with_group(any, add);
  std::vector<comm::Record> calls;
  for (auto* const each : module.communicators())
    if (each->size() > 1) calls.insert(calls.end(), each->monitor().records.begin(), each->monitor().records.end());
  return detail::sums_of_parts(module, groups, calls);
}

/// Returns the communicators of a module that has made a step.
template <class Module>
UsedCommunicators used_communicators(Module& module) {
  UsedCommunicators used;
  for (auto* const each : module.communicators()) {
    if (each->size() == 1) continue;
    const comm::Traffic& traffic = each->monitor().totals.traffic;
    const std::int64_t sums = traffic[comm::Op::reduce_scatter].calls + traffic[comm::Op::all_reduce].calls;
    ++used.all;
    if (traffic[comm::Op::all_to_all].calls > 0 || (module.exchanges_sums() && sums > 0)) ++used.exchanging;
  }
  return used;
}

struct RecordedWork;  // tessera/fsdp/plan/step_record.hpp

/// The sources of a recorder: counters of a module's device, communicators and host memory. They must outlive the
/// recorder.
struct Watched {
  /// A communicator; its monitor must be recording.
  struct Communicator {
    int ranks = 1;
    const comm::Monitor* monitor = nullptr;
  };
  const sharding::Problem* problem = nullptr;    ///< problem of the pass
  const sharding::Schedule* schedule = nullptr;  ///< schedule of the pass with assigned memory slots
  const sharding::Names* names = nullptr;
  DType compute = DType::f32;  ///< type of activations
  bool optimizer_in_host_memory = false;
  device::Counters* counters = nullptr;
  std::array<Communicator, 4> communicators = {};         ///< world, across and shard of a mesh; that of sequences last
  std::size_t axes = 0;                                   ///< number of `communicators` in use
  bool has_groups = false;                                ///< whether the communicators are those of a mesh
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
  /// Call f() and record its operations as the exchange of counts, or as the optimizer's step.
  /// @{
  void record_counts(FunctionRef<void()> f);
  void record_optimizer(FunctionRef<void()> f);
  /// @}

 private:
  void record(RecordedWork StepRecord::*member, FunctionRef<void()> f);
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
              .has_groups = module.has_groups(),
              .used_by_inputs = [](const void*) { return std::int64_t{0}; },
              .activations = &module.arena(),
              .used_by_activations = [](const void* arena) { return static_cast<const Activations*>(arena)->used(); }};
  if constexpr (requires { module.offload_arena(); }) {
    using Inputs = std::remove_reference_t<decltype(module.offload_arena())>;
    all.inputs = &module.offload_arena();
    all.used_by_inputs = [](const void* arena) { return static_cast<const Inputs*>(arena)->used(); };
  }
  for (auto* const communicator : module.communicators())
    all.communicators[all.axes++] = {.ranks = communicator->size(), .monitor = &communicator->monitor()};
  return all;
}

}  // namespace plan
}  // namespace fsdp
