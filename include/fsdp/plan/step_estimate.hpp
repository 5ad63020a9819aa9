// SPDX-License-Identifier: Apache-2.0
/// @file
/// The estimate of a training step on a cluster: its exact memory, and its time from its schedule in virtual time.
///
/// Bytes and collectives are those of a run: the dry run makes the same calls. Times are modelled: rates of the
/// cluster, collectives by latency and bandwidth (cluster.hpp), and operations ordered by the run's own events
/// (step_works.hpp). Not modelled: the time of the host to enqueue operations, and the slowdown of individual kernels
/// during a collective.
#pragma once

#include <cstdint>
#include <vector>

#include <tessera/comm/monitor.hpp>
#include <tessera/fsdp/plan/cluster.hpp>
#include <tessera/fsdp/plan/plan.hpp>
#include <tessera/fsdp/plan/step_record.hpp>
#include <tessera/fsdp/plan/step_works.hpp>

namespace fsdp::plan {

/// One operation of the simulated step with its start and end time.
struct TimedWork {
  NamedWork work;
  Span span;
};

/// The activation memory of a rank from a time of the simulated step on.
struct HeldActivations {
  double seconds = 0;
  std::int64_t bytes = 0;
};

/// Required and available memory of a rank or its host, in bytes.
struct Need {
  std::int64_t needed = 0;
  std::int64_t available = 0;

  /// Returns the bytes that remain; negative if memory is missing.
  std::int64_t left() const { return available - needed; }
};

/// The estimate of a training step on a cluster.
struct Estimate {
  Plan plan;  ///< plan of the rank with the most memory
  Cluster cluster;
  Need device = {};                ///< memory of a rank for tensors and runtime; on a CPU also for offloaded data
  Need host = {};                  ///< memory of a node for the data that its ranks offload
  double seconds = 0;              ///< seconds per step
  double compute_seconds = 0;      ///< seconds in which the rank computes
  double exposed_collectives = 0;  ///< seconds in which it waits for collectives, or executes them itself
  /// Seconds in which it waits for copies to or from host memory, or executes them itself.
  double exposed_copies = 0;
  double tokens = 0;                  ///< number of tokens per step over all ranks
  double model_flops = 0;             ///< FLOPs per step over all ranks: Model::flops, without recomputation
  double peak = 0;                    ///< peak FLOP/s of a rank, the denominator of MFU
  ByLink bytes = {};                  ///< bytes per step: `node` into a rank, `network` into a node, `host` of a rank
  ByLink busy = {};                   ///< seconds per step in which a link would be busy at its full bandwidth
  comm::MeshTraffic traffic = {};     ///< traffic of the pass and its update, as in the metrics of a step
  std::vector<TimedWork> works = {};  ///< operations in the order in which the host enqueues them
  /// Activations after each task; the rest of `plan.bytes` is allocated all the time.
  std::vector<HeldActivations> activations = {};

  /// Returns whether a rank's device and its host have enough memory.
  bool fits() const { return device.left() >= 0 && host.left() >= 0; }
  /// Returns the throughput of all ranks together.
  double tokens_per_second() const { return tokens / seconds; }
  /// Returns the model FLOPs utilization, 0 to 1: the fraction of the peak that the model's FLOPs use.
  double mfu() const { return model_flops / static_cast<double>(cluster.ranks) / seconds / peak; }
};

/// The model's numbers that an estimate needs.
struct ModelWork {
  double tokens = 0;  ///< number of tokens per step over all ranks
  double flops = 0;   ///< FLOPs per step over all ranks
};

/// Returns the bytes of a rank's memory that a step needs: its tensors, on a CPU also offloaded data, and the cluster's
/// runtime memory.
std::int64_t needed_bytes(const Plan& plan, const Cluster& cluster);

/// Returns the estimate of a step that a dry run has planned and recorded. Throws InputError for an invalid cluster.
Estimate estimate_of(const Plan& plan, const StepRecord& record, const ModelWork& work, const Cluster& cluster);

}  // namespace fsdp::plan
