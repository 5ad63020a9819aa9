// SPDX-License-Identifier: Apache-2.0
/// @file
/// Virtual time: the start and end times of operations that run on tracks, wait for each other, and share links; and a
/// recorded training step as such operations: the duration of each one on a cluster, its track and its dependencies.
/// The result depends only on the arguments.
#pragma once

#include <cstdint>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include <tessera/fsdp/plan/cluster.hpp>
#include <tessera/fsdp/plan/step_record.hpp>

namespace fsdp::plan {

/// An operation. It first takes `seconds`, then transfers data.
struct Work {
  /// Track number; operations of a track run one after the other, in the order of the list.
  int track = 0;
  std::vector<int> after = {};  ///< indices of earlier operations that must end before it begins
  double seconds = 0;           ///< seconds in which it uses no link
  double beside = 1;            ///< relative speed of `seconds` during transfers between ranks; 1: as fast as alone
  double transfer = 0;          ///< seconds of its transfer on idle links
  ByLink demand = {};           ///< fraction of each link's bandwidth that the transfer uses, 0 to 1
};

/// The start and end time of an operation, in seconds from the start.
struct Span {
  double begin = 0, end = 0;
  int waited_for = -1;  ///< index of the operation in `after` that it waited for while its track was free; -1: none

  friend bool operator==(const Span&, const Span&) = default;
};

/// Returns the span of each operation. If the transfers in flight demand more than the bandwidth of a link, all of them
/// are slowed down by the same factor: the bandwidth is divided in proportion to the demands. Throws LogicError for an
/// operation that waits for itself or a later one.
std::vector<Span> spans_of(std::span<const Work> works);

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
