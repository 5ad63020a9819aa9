// SPDX-License-Identifier: Apache-2.0
/// @file
/// How a process of a job ends that another rank keeps waiting, or that its launcher ends.
#pragma once

#include <atomic>
#include <chrono>
#include <csignal>
#include <string>
#include <string_view>
#include <thread>

#include <tessera/comm/monitor.hpp>

namespace fsdp::comm {

/// A time limit for calls that do not have one, such as MPI_Init and MPI_Finalize when a rank hangs. Ends the process
/// unless it is destroyed within `limit`: prints one line on stderr, which begins with `whom`, and exits with status 3.
/// `of`: a literal after "the deadline", such as " of the start".
class Watchdog {
 public:
  Watchdog(std::string whom, std::chrono::milliseconds limit, std::string_view of = "");

 private:
  std::jthread thread_;
};

/// The message of a process that its launcher ends with SIGTERM, because another rank or the whole job has ended.
/// While an instance is alive, SIGTERM prints one line on stderr, with the rank and the collective that the process
/// waits in, and exits with status 128 + 15. While stops are caught (tessera/comm/launch/signals.hpp), the first
/// SIGTERM neither exits nor prints the line. Only one instance may be alive; its destructor restores the previous
/// handler.
class TerminationReport {
 public:
  /// `waiting_in`: the monitor of the collective that is waited for; must outlive this object.
  TerminationReport(int rank, const std::atomic<const Monitor*>& waiting_in);
  TerminationReport(const TerminationReport&) = delete;
  TerminationReport& operator=(const TerminationReport&) = delete;
  ~TerminationReport();

 private:
  struct sigaction before_;
};

}  // namespace fsdp::comm
