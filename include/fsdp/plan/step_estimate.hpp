// SPDX-License-Identifier: Apache-2.0
/// @file
/// What a training step takes on a cluster: memory to the byte, and time from its schedule in virtual time.
///
/// Bytes and collectives are those of a run: the dry run makes the same calls. Times are a model: rates of the cluster,
/// collectives by latency and bandwidth (collective_times.hpp), works ordered by the run's own events
/// (virtual_time.hpp). Not modelled: what the host takes to enqueue, and how much slower a kernel is next to a
/// collective.
#pragma once

#include <cstdint>
#include <vector>

#include <tessera/comm/traffic.hpp>
#include <tessera/fsdp/plan/cluster.hpp>
#include <tessera/fsdp/plan/plan.hpp>
#include <tessera/fsdp/plan/step_record.hpp>
#include <tessera/fsdp/plan/step_works.hpp>
#include <tessera/fsdp/plan/virtual_time.hpp>

namespace fsdp::plan {

/// A work of the virtual step and when it runs.
struct TimedWork {
  NamedWork work;
  Span span;
};

/// The activations that a rank holds from a time of the virtual step on.
struct HeldActivations {
  double seconds = 0;
  std::int64_t bytes = 0;
};

/// Memory that a rank or its host needs and has, in bytes.
struct Need {
  std::int64_t needed = 0;
  std::int64_t available = 0;

  /// Bytes that are left; below 0: missing.
  std::int64_t left() const { return available - needed; }
};

/// What a training step takes on a cluster.
struct Estimate {
  Plan plan;  ///< of the rank that takes the most
  Cluster cluster;
  Need device = {};                ///< a rank's tensors and runtime; on a CPU also what is offloaded
  Need host = {};                  ///< what a node's ranks offload
  double seconds = 0;              ///< of a step
  double compute_seconds = 0;      ///< in which the rank computes
  double exposed_collectives = 0;  ///< seconds in which it waits for collectives, or makes them itself
  double exposed_copies = 0;       ///< seconds in which it waits for copies to host memory or back, or makes them
  double tokens = 0;               ///< of a step, over all ranks
  double model_flops = 0;          ///< of a step, over all ranks: Model::flops, without recomputation
  double peak = 0;                 ///< FLOP/s of a rank that MFU divides by
  ByLink bytes = {};               ///< of a step: into a rank by `node`, into a node by `network`, of a rank by `host`
  ByLink busy = {};                ///< seconds of a step in which a link would be busy at its full bandwidth
  comm::MeshTraffic traffic = {};  ///< of the pass and its update, as the metrics of a step count them
  std::vector<TimedWork> works = {};              ///< in the order in which the host enqueues them
  std::vector<HeldActivations> activations = {};  ///< after each task; the rest of `plan.bytes` is held all the time

  /// Whether a rank's device and its host have enough memory.
  bool fits() const { return device.left() >= 0 && host.left() >= 0; }
  /// Of all ranks together.
  double tokens_per_second() const { return tokens / seconds; }
  /// Model FLOPs utilization, 0 to 1: the part of the peak that the model's FLOPs take.
  double mfu() const { return model_flops / static_cast<double>(cluster.ranks) / seconds / peak; }
};

/// The model's numbers that an estimate takes.
struct ModelWork {
  double tokens = 0;  ///< of a step, over all ranks
  double flops = 0;   ///< the same
};

/// Returns the bytes of a rank's memory that a step needs: its tensors, on a CPU also what is offloaded, and what the
/// cluster states of the runtime. `exchanges`: whether ranks call all_to_all.
std::int64_t needed_bytes(const Plan& plan, const Cluster& cluster, bool exchanges);

/// Returns the estimate of a step that a dry run has planned and recorded. Throws InputError for a cluster that cannot
/// be.
Estimate estimate_of(const Plan& plan, const StepRecord& record, const ModelWork& work, const Cluster& cluster);

}  // namespace fsdp::plan
