// SPDX-License-Identifier: Apache-2.0
#include <tessera/fsdp/plan/step_estimate.hpp>

#include <algorithm>
#include <cstddef>

namespace fsdp::plan {
namespace {

comm::MeshTraffic traffic_of(const StepRecord& record) {
  comm::MeshTraffic traffic;
  for (const RecordedCollective& each : record.collectives()) {
    comm::Traffic& axis = each.axis == Axis::world    ? traffic.world
                          : each.axis == Axis::across ? traffic.across
                          : each.axis == Axis::shard  ? traffic.shard
                                                      : traffic.sequence;
    axis[each.op] += {.calls = 1, .bytes = each.bytes};
  }
  return traffic;
}

/// Sets the required and the available memory of a rank and its host.
void set_needs(Estimate& estimate) {
  const Cluster& cluster = estimate.cluster;
  estimate.device = {.needed = needed_bytes(estimate.plan, cluster), .available = cluster.memory};
  estimate.host = {.needed = cluster.on_host() ? 0 : estimate.plan.offloaded_bytes * cluster.ranks_of_node(),
                   .available = cluster.host_memory};
}

/// Sets the seconds in which a rank computes, and the seconds in which it waits, by the cause of the wait.
void set_shares(Estimate& estimate) {
  double free = 0;  // end time of the last operation on the device's queue
  const auto expose = [&](WorkKind kind, double seconds) {
    (kind == WorkKind::copy ? estimate.exposed_copies : estimate.exposed_collectives) += seconds;
  };
  for (const TimedWork& each : estimate.works) {
    estimate.seconds = std::max(estimate.seconds, each.span.end);
    if (each.work.work.track != static_cast<int>(Track::compute)) continue;
    if (each.span.waited_for >= 0)
      expose(estimate.works[static_cast<std::size_t>(each.span.waited_for)].work.kind, each.span.begin - free);
    if (each.work.kind == WorkKind::compute)
      estimate.compute_seconds += each.span.end - each.span.begin;
    else
      expose(each.work.kind, each.span.end - each.span.begin);
    free = each.span.end;
  }
  if (!estimate.works.empty() && estimate.seconds > free)
    expose(estimate.works.back().work.kind, estimate.seconds - free);
}

/// Sets the activation memory after each task that has an operation on the device's queue.
void set_activations(Estimate& estimate, const StepRecord& record) {
  for (const TimedWork& each : estimate.works) {
    if (each.work.task < 0 || each.work.work.track != static_cast<int>(Track::compute)) continue;
    const std::int64_t bytes = record.tasks[static_cast<std::size_t>(each.work.task)].activation_bytes;
    if (estimate.activations.empty() || estimate.activations.back().bytes != bytes)
      estimate.activations.push_back({.seconds = each.span.end, .bytes = bytes});
  }
}

}  // namespace

std::int64_t needed_bytes(const Plan& plan, const Cluster& cluster) {
  return plan.peak_bytes() + cluster.runtime(plan.communicators) + (cluster.on_host() ? plan.offloaded_bytes : 0);
}

Estimate estimate_of(const Plan& plan, const StepRecord& record, const ModelWork& work, const Cluster& cluster) {
  cluster.validate();
  Estimate estimate{.plan = plan,
                    .cluster = cluster,
                    .tokens = work.tokens,
                    .model_flops = work.flops,
                    .peak = cluster.peak(record.compute),
                    .traffic = traffic_of(record)};
  set_needs(estimate);
  std::vector<NamedWork> steps = works_of(cluster, record);
  std::vector<Work> works;
  for (const NamedWork& step : steps) works.push_back(step.work);
  const std::vector<Span> spans = spans_of(works);
  for (std::size_t i = 0; i < steps.size(); ++i) {
    for (std::size_t link = 0; link < link_count; ++link) {
      estimate.bytes[link] += steps[i].bytes[link];
      estimate.busy[link] += steps[i].work.transfer * steps[i].work.demand[link];
    }
    estimate.works.push_back({.work = std::move(steps[i]), .span = spans[i]});
  }
  set_shares(estimate);
  set_activations(estimate, record);
  return estimate;
}

}  // namespace fsdp::plan
