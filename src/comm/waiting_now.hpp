// SPDX-License-Identifier: Apache-2.0
/// @file
/// What a process says when its launcher ends it, because another rank has died or the job has.
#pragma once

#include <comm/monitor.hpp>

namespace fsdp::comm {

/// Tells the signal handler, for its lifetime, which collective this process waits in. For the thread that calls MPI.
class WaitingNow {
 public:
  explicit WaitingNow(const Monitor& monitor);
  WaitingNow(const WaitingNow&) = delete;
  WaitingNow& operator=(const WaitingNow&) = delete;
  ~WaitingNow();

 private:
  const Monitor* outer_;
};

/// On SIGTERM: one line on stderr with the rank and the pending collective, then exit status 128 + 15; while signals
/// are caught (comm/signals.hpp), the line alone.
void install_termination_report(int rank);

}  // namespace fsdp::comm
