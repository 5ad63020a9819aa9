// SPDX-License-Identifier: Apache-2.0
/// @file
/// Chrome's trace format: what each rank did when, for chrome://tracing and Perfetto.
#pragma once

#include <cstdint>
#include <filesystem>
#include <mutex>
#include <string>
#include <vector>

namespace fsdp::report {

/// A span of time. Spans of one rank and lane nest or do not overlap.
struct TraceEvent {
  std::string name = {};
  std::string category = {};      ///< "compute", "comm", "optim", "checkpoint"
  double begin_microseconds = 0;  ///< since the run's start
  double duration_microseconds = 0;
  std::int64_t rank = 0;
  std::int64_t lane = 0;  ///< shown as a thread of the rank; one for computing, one for communicating
};

/// All events as {"traceEvents": [...]}.
std::string trace_json(const std::vector<TraceEvent>& events);

/// Collects from all ranks of a process.
class Trace {
 public:
  /// Checks that the file can be made; empty collects nothing. Throws InputError.
  explicit Trace(std::filesystem::path path = {});
  ~Trace();

  /// Whether anything is collected.
  bool on() const { return !path_.empty(); }
  /// May be called by any thread.
  void add(TraceEvent event);
  void write() const;  ///< throws InputError where the file cannot be written

 private:
  std::filesystem::path path_;
  mutable std::mutex mutex_;
  std::vector<TraceEvent> events_;
};

/// The file of a process under MPI: `path` for rank 0, "name.rank3.json" for the others.
std::filesystem::path trace_path(const std::filesystem::path& path, std::int64_t rank);

}  // namespace fsdp::report
