// SPDX-License-Identifier: Apache-2.0
/// @file
/// The message of a process that its launcher ends with SIGTERM, because another rank or the whole job has ended.
#pragma once

#include <tessera/comm/monitor.hpp>

namespace fsdp::comm {

/// Tells the signal handler, while it lives, which collective this process waits in. For the thread that calls MPI.
class WaitingNow {
 public:
  explicit WaitingNow(const Monitor& monitor);
  WaitingNow(const WaitingNow&) = delete;
  WaitingNow& operator=(const WaitingNow&) = delete;
  ~WaitingNow();

 private:
  const Monitor* outer_;
};

/// Installs a SIGTERM handler, which prints one line on stderr with the rank and the pending collective, then exits
/// with status 128 + 15. While signals are caught (tessera/comm/signals.hpp) the first SIGTERM does not exit, and
/// prints the line only if the launcher sent it.
void install_termination_report(int rank);

}  // namespace fsdp::comm
