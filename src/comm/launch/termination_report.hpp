// SPDX-License-Identifier: Apache-2.0
/// @file
/// The message of a process that its launcher ends with SIGTERM, because another rank or the whole job has ended.
#pragma once

#include <atomic>
#include <csignal>

#include <tessera/comm/monitor.hpp>

namespace fsdp::comm {

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
