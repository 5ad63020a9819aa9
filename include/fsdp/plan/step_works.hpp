// SPDX-License-Identifier: Apache-2.0
/// @file
/// A recorded training step as operations in virtual time: the duration of each one on a cluster, its track and its
/// dependencies.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include <tessera/fsdp/plan/cluster.hpp>
#include <tessera/fsdp/plan/step_record.hpp>
#include <tessera/fsdp/plan/virtual_time.hpp>

namespace fsdp::plan {

/// The tracks of a rank: its device's queue, a queue for each communicator, and one for copies to and from host memory.
enum class Track : std::uint8_t { compute, world, across, shard, sequence, host };
inline constexpr std::size_t track_count = 6;  ///< number of values of Track
/// Returns the name in tables and traces: "compute", the names of comm::MeshTraffic, "host".
std::string_view name_of(Track track);

/// The kind of an operation of a step.
enum class WorkKind : std::uint8_t { compute, collective, copy };

/// An operation with its kind, name, bytes and task.
struct NamedWork {
  Work work = {};
  WorkKind kind = WorkKind::compute;
  std::string name = {};  ///< name as in the traces of runs, such as "gather 3"; also "counts", "optimizer"
  ByLink bytes = {};      ///< bytes by link, see CollectiveTime
  int task = -1;          ///< index in StepRecord::tasks; -1 if the operation belongs to no task
};

/// Returns the seconds of recorded work on a rank's device: the stated seconds; matmuls by their rate, or by their
/// operands' bytes if that takes longer; attention by its rate, and all other operations by their bytes. `compute`: the
/// type of activations.
double compute_seconds(const Cluster& cluster, const RecordedWork& work, DType compute);

/// Returns the operations of a step. If the cluster's collectives have queues, operations wait for each other by the
/// events of a run (sharding::queued_works), and the optimizer waits for all. Otherwise all are on the track `compute`,
/// one after the other. Throws InputError for a schedule whose operations would race on such queues.
std::vector<NamedWork> works_of(const Cluster& cluster, const StepRecord& record);

}  // namespace fsdp::plan
