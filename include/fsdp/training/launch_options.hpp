// SPDX-License-Identifier: Apache-2.0
/// @file
/// Options for starting ranks, as plain numbers that programs and flags set.
#pragma once

#include <cstdint>

#include <tessera/fsdp/core/checked.hpp>

namespace fsdp::train {

inline constexpr std::int64_t most_started_ranks = 1024;  ///< maximum number of ranks that one program starts itself
inline constexpr Range<std::int64_t> thread_counts{.least = 0, .most = 1024};  ///< threads per rank; 0: automatic
/// Deadlines, in seconds.
inline constexpr Range<double> deadlines{.least = 0, .most = 1e6, .above = true};

/// Whether equal runs on the same ranks have bit-identical float sums. `fast`: also algorithms whose order of summation
/// differs from call to call, such as NVLS of NCCL.
enum class Reductions : std::uint8_t { deterministic, fast };

/// The ranks of a run: their number, threads and deadlines.
struct LaunchOptions {
  std::int64_t ranks = 1;    ///< number of ranks if the program starts them itself, as with Threads; otherwise unused
  std::int64_t threads = 0;  ///< number of threads per rank; 0: cores / ranks, at least 1
  double deadline_seconds = 20;          ///< maximum time that a rank waits for others in a collective
  double start_deadline_seconds = 300;   ///< maximum time that a rank waits for others until all are connected
  double device_deadline_seconds = 600;  ///< maximum time that a rank waits for its own device
  double disk_deadline_seconds = 600;    ///< maximum time that a rank waits for others that read or write files
  bool windows = true;                   ///< whether ranks of one machine under MPI read each other's memory
  Reductions reductions = Reductions::deterministic;

  friend bool operator==(const LaunchOptions&, const LaunchOptions&) = default;
};

/// Throws InputError for the first invalid value.
void validate(const LaunchOptions& options);

}  // namespace fsdp::train
