// SPDX-License-Identifier: Apache-2.0
/// @file
/// The estimate of a step with user-defined forward and backward on a cluster: the exact memory of the library's
/// tensors, and the time from the schedule in virtual time.
///
/// Units, strategy and settings are those of a Sharded (tessera/fsdp/optim/sharded.hpp). The library accounts for its
/// own collectives, copies and optimizer; the caller specifies the cost of the computations:
///
///     const plan::Estimate step = plan::estimate<Sharded<Stack>>(
///         units, {}, {}, {.seconds = [](const sharding::Task& task) { return task.index == 0 ? 0.004 : 0.002; }},
///         plan::known_cluster("h100", 64));
#pragma once

#include <cstddef>
#include <cstdint>
#include <functional>
#include <vector>

#include <tessera/comm/simulated.hpp>
#include <tessera/fsdp/core/checked.hpp>
#include <tessera/fsdp/core/error.hpp>
#include <tessera/fsdp/device/memory.hpp>
#include <tessera/fsdp/device/meta.hpp>
#include <tessera/fsdp/module/pass.hpp>
#include <tessera/fsdp/module/stack.hpp>
#include <tessera/fsdp/module/units.hpp>
#include <tessera/fsdp/optim/sharded.hpp>
#include <tessera/fsdp/plan/cluster.hpp>
#include <tessera/fsdp/plan/dry_run_parts.hpp>
#include <tessera/fsdp/plan/plan.hpp>
#include <tessera/fsdp/plan/step_estimate.hpp>
#include <tessera/fsdp/plan/step_record.hpp>

namespace fsdp::plan {

/// The cost of the caller's own code in a step.
struct ForeignStep {
  /// Returns the seconds of one computation on a rank of the cluster, including the caller's own collectives.
  /// Task::index is the unit; Task::action is forward, backward or loss (both in one computation). Required.
  std::function<double(const sharding::Task&)> seconds;
  std::int64_t own_bytes = 0;  ///< peak bytes of the caller's own tensors on a rank; counted as activations
  double samples = 0;          ///< number of samples per step over all ranks, reported as Estimate::tokens
  double flops = 0;            ///< FLOPs per step over all ranks, for the MFU
  int order = 0;               ///< index into the settings' orders
  int micro_batches = 0;       ///< number of micro-batches of this step; 0: as many as planned
};

namespace detail {

/// The Meta instance of a Sharded: the same type on a device without storage.
template <class ShardedT>
using MetaSharded = Sharded<MetaModuleStack<typename ShardedT::Stack>, typename ShardedT::Optimizer::Optimizer>;

/// Makes a training step of the Meta instance `twin`, whose computations do nothing, and records it.
template <class Twin>
void record_step(Twin& twin, const ForeignStep& step, StepRecord& record) {
  StepRecorder recorder(&record);
  recorder.watch(watched(twin.module(), step.order, step.micro_batches));
  recorder.set_active(true);
  Pass<typename Twin::Stack> pass(twin.module(), sharding::Pass::train, step.order, step.micro_batches,
                                  recorder.observer());
  while (pass.next().has_value()) pass.enter().done();
  pass.finish();
  recorder.set_active(false);
  recorder.record_optimizer([&] { twin.queue_step({}); });
}

/// Returns the memory of a rank of a Sharded that has made its step.
template <class Twin>
Plan plan_of(Twin& twin, int rank, std::int64_t own_bytes) {
  Plan plan;
  plan.rank = rank;
  plan.bytes = twin.held().bytes;
  plan.activation_bytes = twin.held().arena;
  plan.offloaded_bytes = twin.module().offload_ledger().peak();
  plan.communicators = used_communicators(twin.module());
  plan.residency = twin.module().residency();
  plan.bytes[static_cast<std::size_t>(device::MemoryKind::activations)] += own_bytes;
  return plan;
}

/// Sets the seconds of computations. Throws InputError for a value that is not a valid time.
inline void state_seconds(StepRecord& record, const ForeignStep& step) {
  for (RecordedTask& each : record.tasks) {
    if (!sharding::computes(each.task.action)) continue;
    each.work.stated_seconds = step.seconds(each.task);
    require<InputError>(is_finite(each.work.stated_seconds) && each.work.stated_seconds >= 0,
                        "plan: ", sharding::text_of(each.task, record.names), " is said to take ",
                        each.work.stated_seconds, " seconds; a computation takes 0 or more");
  }
}

}  // namespace detail

/// Returns the estimate of a training step with its optimizer on the cluster's ranks, for the rank with the most
/// memory. Allocates nothing and needs no communicator. Settings::budget is not enforced here: Estimate::fits compares
/// with the cluster's memory. Throws InputError for an invalid cluster or an invalid number in the step, and as Sharded
/// does.
template <class ShardedT>
Estimate estimate(const std::vector<Unit>& units, const typename ShardedT::Strategy& strategy,
                  typename ShardedT::Settings settings, const ForeignStep& step, const Cluster& cluster) {
  cluster.validate();
  require<InputError>(step.seconds != nullptr,
                      "plan: nothing says how long computations take; give ForeignStep::seconds");
  require<InputError>(step.own_bytes >= 0 && step.samples >= 0 && step.flops >= 0,
                      "plan: bytes, samples and FLOPs of a step are 0 or more");
  using Twin = detail::MetaSharded<ShardedT>;
  const auto ranks = static_cast<int>(cluster.ranks);
  settings.budget = 0;
  const auto with_twin = [&](int rank, auto f) {
    typename Twin::Comm communicator(comm::simulated_world<typename ShardedT::Comm>(ranks, rank), {.record = true});
    Twin twin(communicator, units, described<typename ShardedT::Stack, typename Twin::Stack>(strategy), settings);
    return f(twin);
  };
  StepRecord record;
  Request request;
  request.ranks = ranks;
  request.record = &record;
  std::vector<int> candidates;
  bool same_on_all_ranks = true;
  with_twin(0, [&](Twin& twin) {
    candidates = detail::ranks_to_try(twin.module(), request, settings.optimizer);
    same_on_all_ranks = loads_ranks_alike(twin.module().group_list(), ranks);
  });
  Plan most = detail::largest_plan(request, candidates, [&](const Request& one) {
    return with_twin(one.rank, [&](Twin& twin) {
      detail::record_step(twin, step, *one.record);
      return detail::plan_of(twin, one.rank, step.own_bytes);
    });
  });
  most.same_on_all_ranks = same_on_all_ranks;
  detail::state_seconds(record, step);
  return estimate_of(most, record, {.tokens = step.samples, .flops = step.flops}, cluster);
}

}  // namespace fsdp::plan
