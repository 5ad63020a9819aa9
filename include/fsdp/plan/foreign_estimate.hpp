// SPDX-License-Identifier: Apache-2.0
/// @file
/// What a step takes on a cluster of code that has forward and backward of its own: memory of what the library holds to
/// the byte, and time from the schedule in virtual time.
///
/// Units, strategy and settings are those of a Sharded (tessera/fsdp/optim/sharded.hpp). The library knows its own
/// collectives, copies and optimizer; the caller states what her computations take:
///
///     const plan::Estimate step = plan::estimate<Sharded<Stack>>(
///         units, {}, {}, {.seconds = [](const sharding::Task& task) { return task.index == 0 ? 0.004 : 0.002; }},
///         plan::known_cluster("h100", 64));
#pragma once

#include <cstddef>
#include <cstdint>
#include <functional>
#include <utility>
#include <vector>

#include <tessera/comm/simulated.hpp>
#include <tessera/fsdp/core/error.hpp>
#include <tessera/fsdp/core/finite.hpp>
#include <tessera/fsdp/device/memory.hpp>
#include <tessera/fsdp/device/meta.hpp>
#include <tessera/fsdp/module/meta_stack.hpp>
#include <tessera/fsdp/module/pass.hpp>
#include <tessera/fsdp/module/units.hpp>
#include <tessera/fsdp/optim/sharded.hpp>
#include <tessera/fsdp/plan/cluster.hpp>
#include <tessera/fsdp/plan/plan.hpp>
#include <tessera/fsdp/plan/ranks.hpp>
#include <tessera/fsdp/plan/step_estimate.hpp>
#include <tessera/fsdp/plan/step_record.hpp>
#include <tessera/fsdp/plan/step_recorder.hpp>

namespace fsdp::plan {

/// What the caller's own code takes in a step.
struct ForeignStep {
  /// Seconds of one computation on a rank of the cluster, with the caller's own collectives if she makes any.
  /// Task::index is the unit, Task::action forward, backward or loss (both in one go). Must be given.
  std::function<double(const sharding::Task&)> seconds;
  std::int64_t own_bytes = 0;  ///< most that the caller's own tensors take of a rank's memory; counted as activations
  double samples = 0;          ///< of a step, over all ranks: what Estimate::tokens counts
  double flops = 0;            ///< the same, for the MFU
  int order = 0;               ///< of the settings' orders
  int micro_batches = 0;       ///< of this step; 0: as many as planned
};

namespace detail {

/// The same Sharded on a device without storage.
template <class ShardedT>
using MetaSharded = Sharded<MetaModuleStack<typename ShardedT::Stack>, typename ShardedT::Optimizer::Optimizer>;

/// Makes a training step of `twin`, whose computations compute nothing, and records it.
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
  recorder.record(&StepRecord::optimizer, [&] { twin.queue_step({}); });
}

/// Returns what a rank holds of a Sharded that has made its step.
template <class Twin>
Plan plan_of(Twin& twin, int rank, std::int64_t own_bytes) {
  Plan plan;
  plan.rank = rank;
  plan.bytes = twin.held().bytes;
  plan.activation_bytes = twin.held().arena;
  plan.offloaded_bytes = twin.module().offload_ledger().peak();
  plan.residency = twin.module().residency();
  plan.bytes[static_cast<std::size_t>(device::MemoryKind::activations)] += own_bytes;
  return plan;
}

/// Sets the seconds of computations. Throws InputError for what is no time.
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

/// Returns what a training step and its optimizer take on the cluster's ranks, of the rank that takes the most memory.
/// Allocates nothing and needs no communicator. Settings::budget is no limit here: Estimate::fits says what the
/// cluster's memory is. Throws InputError for a cluster or a number of the step that cannot be, and as Sharded does.
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
  Request request;
  request.ranks = ranks;
  std::vector<int> candidates;
  Plan most;
  StepRecord record;
  with_twin(0, [&](Twin& twin) {
    candidates = detail::ranks_to_try(twin.module(), request, settings.optimizer);
    most.same_on_all_ranks = loads_ranks_alike(twin.module().group_list(), ranks);
  });
  for (const int rank : candidates)
    with_twin(rank, [&](Twin& twin) {
      StepRecord own;
      detail::record_step(twin, step, own);
      Plan plan = detail::plan_of(twin, rank, step.own_bytes);
      plan.same_on_all_ranks = most.same_on_all_ranks;
      if (plan.peak_bytes() <= most.peak_bytes()) return;
      most = std::move(plan);
      record = std::move(own);
    });
  detail::state_seconds(record, step);
  return estimate_of(most, record, {.tokens = step.samples, .flops = step.flops}, cluster);
}

}  // namespace fsdp::plan
