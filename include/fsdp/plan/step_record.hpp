// SPDX-License-Identifier: Apache-2.0
/// @file
/// What a training step does, task by task, as a dry run finds it: work, collectives, copies to host memory and back.
#pragma once

#include <cstddef>
#include <cstdint>
#include <string_view>
#include <utility>
#include <vector>

#include <tessera/comm/traffic.hpp>
#include <tessera/fsdp/core/dtype.hpp>
#include <tessera/fsdp/device/operation.hpp>
#include <tessera/fsdp/plan/collective_times.hpp>
#include <tessera/fsdp/sharding/problem.hpp>
#include <tessera/fsdp/sharding/schedule.hpp>

namespace fsdp::plan {

/// The communicators of a step, as comm::MeshTraffic names them.
enum class Axis : std::uint8_t { world, across, shard, sequence };
inline constexpr std::size_t axis_count = 4;  ///< values of Axis
/// Returns the name: "world".
std::string_view name_of(Axis axis);

/// A collective of a step.
struct RecordedCollective {
  Axis axis = Axis::world;
  comm::Op op = comm::Op::barrier;
  DType dtype = DType::u8;
  std::int64_t bytes = 0;  ///< as comm::Record::bytes

  friend bool operator==(const RecordedCollective&, const RecordedCollective&) = default;
};

/// Equal matmuls of a task.
struct CountedMatmul {
  device::MatmulRecord matmul;
  std::int64_t count = 0;
};

/// What a part of a step does on a rank.
struct RecordedWork {
  double stated_seconds = 0;                ///< of the caller's own code, which nothing here counts
  device::Counters counters = {};           ///< without its list of matmuls
  std::vector<CountedMatmul> matmuls = {};  ///< each shape once
  std::vector<RecordedCollective> collectives = {};
  std::int64_t host_bytes = 0;  ///< copied between device and host memory
};

/// A task of the schedule and what it does.
struct RecordedTask {
  sharding::Task task = {};
  RecordedWork work = {};
  std::int64_t activation_bytes = 0;  ///< of the arena that are in use after it
};

/// A training step of one rank.
struct StepRecord {
  sharding::Problem problem = {};
  sharding::Schedule schedule = {};  ///< placed
  sharding::Names names = {};
  std::vector<RecordedTask> tasks = {};             ///< in the schedule's order
  RecordedWork counts = {};                         ///< the exchange of counts before the step
  RecordedWork optimizer = {};                      ///< after the pass
  std::vector<std::pair<Axis, Members>> axes = {};  ///< of the communicators, of which those of one rank move nothing
  DType compute = DType::f32;                       ///< of activations
  bool optimizer_in_host_memory = false;

  /// The ranks of an axis; one if the strategy lacks it.
  Members members(Axis axis) const;
  /// Multiplies the FLOPs of attention, which were recorded of whole sequences.
  void scale_attention(double factor);
  /// The collectives of the pass and of the optimizer, in the order of their calls on each axis; without the exchange
  /// of counts, which a run makes beside the step before.
  std::vector<RecordedCollective> collectives() const;
};

/// Adds to `list` a matmul, or to the count of equal ones.
void add_matmul(std::vector<CountedMatmul>& list, const device::MatmulRecord& matmul);

}  // namespace fsdp::plan
