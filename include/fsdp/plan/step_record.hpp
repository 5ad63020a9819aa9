// SPDX-License-Identifier: Apache-2.0
/// @file
/// The record of a training step, task by task, made by a dry run: operations, collectives, copies to and from host
/// memory.
#pragma once

#include <cstddef>
#include <cstdint>
#include <string_view>
#include <utility>
#include <vector>

#include <tessera/comm/monitor.hpp>
#include <tessera/fsdp/core/dtype.hpp>
#include <tessera/fsdp/device/operation.hpp>
#include <tessera/fsdp/plan/cluster.hpp>
#include <tessera/fsdp/sharding/problem.hpp>
#include <tessera/fsdp/sharding/schedule.hpp>

namespace fsdp::plan {

/// The communicators of a step, with the names of comm::MeshTraffic.
enum class Axis : std::uint8_t { world, across, shard, sequence };
inline constexpr std::size_t axis_count = 4;  ///< number of values of Axis
/// Returns the name of an axis, such as "world".
std::string_view name_of(Axis axis);

/// A collective of a step.
struct RecordedCollective {
  Axis axis = Axis::world;
  comm::Op op = comm::Op::barrier;
  DType dtype = DType::u8;
  std::int64_t bytes = 0;  ///< bytes as in comm::Record::bytes

  friend bool operator==(const RecordedCollective&, const RecordedCollective&) = default;
};

/// Equal matmuls of a task, with their number.
struct CountedMatmul {
  device::MatmulRecord matmul;
  std::int64_t count = 0;
};

/// The operations of a part of a step on a rank.
struct RecordedWork {
  double stated_seconds = 0;                ///< seconds of the caller's own code, which is not recorded otherwise
  device::Counters counters = {};           ///< operation counts, without the list of matmuls
  std::vector<CountedMatmul> matmuls = {};  ///< matmuls, each shape once
  std::vector<RecordedCollective> collectives = {};
  std::int64_t host_bytes = 0;  ///< bytes copied between device and host memory
};

/// A task of the schedule with its operations.
struct RecordedTask {
  sharding::Task task = {};
  RecordedWork work = {};
  std::int64_t activation_bytes = 0;  ///< bytes of the arena in use after the task
};

/// A training step of one rank.
struct StepRecord {
  sharding::Problem problem = {};
  sharding::Schedule schedule = {};  ///< schedule with assigned memory slots
  sharding::Names names = {};
  std::vector<RecordedTask> tasks = {};  ///< tasks in the schedule's order
  RecordedWork counts = {};              ///< the exchange of counts before the step
  RecordedWork optimizer = {};           ///< the optimizer's step after the pass
  /// Members of each communicator; those with one rank transfer nothing.
  std::vector<std::pair<Axis, Members>> axes = {};
  DType compute = DType::f32;  ///< type of activations
  bool optimizer_in_host_memory = false;

  /// Returns the ranks of an axis; one rank if the strategy does not have this axis.
  Members members(Axis axis) const;
  /// Multiplies the FLOPs of attention, which were recorded for whole sequences, by `factor`. Counts them as not
  /// computed by cuDNN, which does not support packed documents.
  void scale_attention(double factor);
  /// Returns the collectives of the pass and of the optimizer, in the order of their calls on each axis; without the
  /// exchange of counts, which a run overlaps with the previous step.
  std::vector<RecordedCollective> collectives() const;
};

/// Adds a matmul to `list`, or increments the count of an equal one.
void add_matmul(std::vector<CountedMatmul>& list, const device::MatmulRecord& matmul);

}  // namespace fsdp::plan
