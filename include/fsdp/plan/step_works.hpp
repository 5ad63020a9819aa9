// SPDX-License-Identifier: Apache-2.0
/// @file
/// A recorded training step as works of virtual time: what each task takes on a cluster, on which track, behind what.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include <tessera/fsdp/plan/cluster.hpp>
#include <tessera/fsdp/plan/step_record.hpp>
#include <tessera/fsdp/plan/virtual_time.hpp>

namespace fsdp::plan {

/// The tracks of a rank: its device's queue, a queue for each communicator, and that of copies to host memory and back.
enum class Track : std::uint8_t { compute, world, across, shard, sequence, host };
inline constexpr std::size_t track_count = 6;  ///< values of Track
/// Returns the name in tables and traces: "compute", those of comm::MeshTraffic, "host".
std::string_view name_of(Track track);

/// What a work of a step is.
enum class WorkKind : std::uint8_t { compute, collective, copy };

/// A work, and what it does.
struct NamedWork {
  Work work = {};
  WorkKind kind = WorkKind::compute;
  std::string name = {};  ///< "gather 3", as in the traces of runs; "counts", "optimizer"
  ByLink bytes = {};      ///< see CollectiveTime
  int task = -1;          ///< number in StepRecord::tasks; -1 for what is no task
};

/// Returns the seconds that a rank's device takes: those that are stated; matmuls by rate or, where it is more, by
/// their operands' bytes; then attention by its rate, and all other operations by their bytes. `compute`: the type of
/// activations.
double compute_seconds(const Cluster& cluster, const RecordedWork& work, DType compute);

/// Returns the works of a step. Where the cluster's collectives have queues, works wait for each other as the events of
/// a run make them (sharding::queued_works), and the optimizer waits for all. Otherwise all are on the track `compute`,
/// one after the other. Throws InputError for a schedule whose works would race on such queues.
std::vector<NamedWork> works_of(const Cluster& cluster, const StepRecord& record);

}  // namespace fsdp::plan
