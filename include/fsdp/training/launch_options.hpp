// SPDX-License-Identifier: Apache-2.0
/// @file
/// How ranks are started: plain numbers, of programs and of flags.
#pragma once

#include <cstdint>

#include <tessera/fsdp/core/range.hpp>

namespace fsdp::train {

inline constexpr std::int64_t most_started_ranks = 1024;                       ///< that one program starts itself
inline constexpr Range<std::int64_t> thread_counts{.least = 0, .most = 1024};  ///< of a rank; 0: chosen
/// Deadlines, in seconds.
inline constexpr Range<double> deadlines{.least = 0, .most = 1e6, .above = true};

/// The ranks of a run: how many, their threads, and their deadlines.
struct LaunchOptions {
  std::int64_t ranks = 1;                ///< if the program starts them itself, as Threads does; otherwise unused
  std::int64_t threads = 0;              ///< per rank; 0: cores / ranks, at least 1
  double deadline_seconds = 20;          ///< how long a rank waits for others in a collective
  double device_deadline_seconds = 600;  ///< how long a rank waits for its own device
  double disk_deadline_seconds = 600;    ///< how long a rank waits for others that read or write files
  bool windows = true;                   ///< ranks of one machine under MPI read each other's memory

  friend bool operator==(const LaunchOptions&, const LaunchOptions&) = default;
};

/// Throws InputError with one sentence about the first invalid value.
void validate(const LaunchOptions& options);

}  // namespace fsdp::train
