// SPDX-License-Identifier: Apache-2.0
/// @file
/// Traces of what each rank did when, in Chrome's format for chrome://tracing and Perfetto.
#pragma once

#include <cstdint>
#include <filesystem>
#include <mutex>
#include <string>
#include <utility>
#include <vector>

#include <tessera/fsdp/core/file.hpp>
#include <tessera/fsdp/device/memory.hpp>

namespace fsdp::report {

/// A span of time, or a counter's values from a time on. Spans of one rank and lane nest or do not overlap.
struct TraceEvent {
  std::string name = {};
  std::string category = {};      ///< "compute", "comm", "optim", "checkpoint"
  double begin_microseconds = 0;  ///< since the run's start
  double duration_microseconds = 0;
  std::int64_t rank = 0;
  std::int64_t lane = 0;  ///< shown as a thread of the rank; one for compute, one for communication
  std::vector<std::pair<std::string, std::int64_t>> values = {};  ///< of a counter, shown one above the other; no span
};

/// Returns the counter "memory" of a rank, by kind: what it holds, of which `activations` are in use.
TraceEvent memory_event(const device::BytesByKind& held, std::int64_t activations, std::int64_t rank, double seconds);

/// Returns all events as {"traceEvents": [...]}. `lanes`: the names of lanes, by number; the others show their number.
std::string trace_json(const std::vector<TraceEvent>& events, const std::vector<std::string>& lanes = {});

/// Collects events; several threads can add to it.
class Trace {
 public:
  /// Checks that the file can be created; throws InputError if not. With an empty path, nothing is collected. `lanes`:
  /// as in trace_json.
  explicit Trace(std::filesystem::path path = {}, std::vector<std::string> lanes = {"compute", "communication"});
  ~Trace();

  /// Returns whether events are collected.
  bool on() const { return !path_.empty(); }
  /// Adds an event. Any thread may call it.
  void add(TraceEvent event);
  /// Writes the file under a temporary name, then gives it its own: what stood there is replaced by a whole trace or
  /// not at all. Pipes and devices are written as they are. Throws InputError if it cannot be written.
  void write() const;

 private:
  std::filesystem::path path_;
  FileDescriptor fifo_;  ///< keeps the reader of a FIFO
  std::vector<std::string> lanes_;
  mutable std::mutex mutex_;
  std::vector<TraceEvent> events_;
};

/// Returns the trace file of a rank: `path` for rank 0, "name.rank3.json" for others.
std::filesystem::path trace_path(const std::filesystem::path& path, std::int64_t rank);

}  // namespace fsdp::report
