// SPDX-License-Identifier: Apache-2.0
/// @file
/// Traces of each rank's activity over time, in Chrome's format for chrome://tracing and Perfetto.
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

/// A span of time, or the values of a counter from a point in time. Spans of one rank and lane nest or do not overlap.
struct TraceEvent {
  std::string name = {};
  std::string category = {};      ///< "compute", "comm", "optim", "checkpoint"
  double begin_microseconds = 0;  ///< time since the run's start
  double duration_microseconds = 0;
  std::int64_t rank = 0;
  std::int64_t lane = 0;  ///< shown as a thread of the rank; one for compute, one for communication
  /// Values of a counter, displayed stacked; empty for a span.
  std::vector<std::pair<std::string, std::int64_t>> values = {};
};

/// Returns the counter "memory" of a rank: the bytes `held` by kind, but of activations only those in use.
TraceEvent memory_event(const device::BytesByKind& held, std::int64_t activations, std::int64_t rank, double seconds);

/// Returns all events as {"traceEvents": [...]}. `lanes`: names by number; a lane without a name shows its number.
std::string trace_json(const std::vector<TraceEvent>& events, const std::vector<std::string>& lanes = {});

/// Collects events; several threads can add to it.
class Trace {
 public:
  /// Checks that the file can be created; throws InputError if not. With an empty path, nothing is collected. `lanes`:
  /// as in trace_json.
  explicit Trace(std::filesystem::path path = {}, std::vector<std::string> lanes = {"compute", "communication"});

  bool on() const { return !path_.empty(); }  ///< whether events are collected
  /// Adds an event. Any thread may call it.
  void add(TraceEvent event);
  /// Writes a temporary file and renames it, so that an existing file is replaced by a complete trace or not at all.
  /// Pipes and devices are written directly. Throws InputError if it cannot be written.
  void write() const;

 private:
  std::filesystem::path path_;
  FileDescriptor fifo_;  ///< keeps a FIFO open for its reader
  std::vector<std::string> lanes_;
  mutable std::mutex mutex_;
  std::vector<TraceEvent> events_;
};

/// Returns the trace file of a rank: `path` for rank 0, "name.rank3.json" for others.
std::filesystem::path trace_path(const std::filesystem::path& path, std::int64_t rank);

}  // namespace fsdp::report
