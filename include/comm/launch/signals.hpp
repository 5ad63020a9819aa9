// SPDX-License-Identifier: Apache-2.0
/// @file
/// Deferred signals: SIGTERM, SIGINT and SIGHUP ask a long run to end, SIGUSR1 asks it to save.
///
/// The handler only records the signal. Ranks receive signals at different moments, so a run must agree on its reaction
/// over all ranks (tessera/fsdp/execution/count_exchange.hpp).
#pragma once

#include <string>

#include <tessera/comm/stopped.hpp>

namespace fsdp::comm {

/// Records this process's signals while at least one instance lives; restores the previous handlers afterwards. A
/// second SIGTERM or SIGINT ends the process at once, with status 128 + signal; a SIGHUP never does, since a lost
/// terminal sends several. A SIGHUP that was ignored before, as under nohup, stays ignored; SIGINT and SIGTERM do not,
/// since shells ignore SIGINT in whatever a script starts with `&`. Writing into a pipe without a reader is an error
/// (EPIPE) meanwhile, no signal. Ranks that are threads have one instance each.
class CatchSignals {
 public:
  CatchSignals();
  CatchSignals(const CatchSignals&) = delete;
  CatchSignals& operator=(const CatchSignals&) = delete;
  ~CatchSignals();

  /// Returns what was received since the first live instance was constructed. Any thread may call it.
  SignalRequests asked() const;
  /// Records a stop as if `signal` had come: SIGPIPE, where writing showed that the reader is gone.
  void ask_to_stop(int signal) const;
  /// Throws StoppedError "SIGTERM: `then`" if a stop was asked for.
  void throw_if_stopped(const std::string& then) const;
};

/// Returns "SIGTERM", "SIGINT", "SIGHUP" or "SIGPIPE".
const char* name_of_stop(int signal);

}  // namespace fsdp::comm
