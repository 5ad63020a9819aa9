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

/// Records this process's signals while at least one instance lives; restores the previous handlers afterwards.
/// Another SIGTERM or SIGINT ends the process at once, with status 128 + signal, unless it comes within a second of the
/// first: a terminal and a launcher both send one. A SIGHUP never does, since a lost terminal sends several. A SIGHUP
/// that was ignored before, as under nohup, stays ignored; SIGINT and SIGTERM do not, since shells ignore SIGINT in
/// whatever a script starts with `&`. Writing into a pipe without a reader is an error (EPIPE) meanwhile, no signal.
/// Ranks that are threads have one instance each.
class CatchSignals {
 public:
  /// Selects the constructor of an instance that leaves SIGTERM, SIGINT and SIGHUP as they are until `catch_stops`.
  struct Later {};

  CatchSignals() : CatchSignals(Later()) { catch_stops(); }
  /// Catches SIGUSR1 and SIGPIPE alone.
  explicit CatchSignals(Later later);
  CatchSignals(const CatchSignals&) = delete;
  CatchSignals& operator=(const CatchSignals&) = delete;
  ~CatchSignals();

  /// Catches SIGTERM, SIGINT and SIGHUP from now on; call it once. `answered`: a literal which the signal handler
  /// prints behind the name of the first SIGTERM or SIGINT; null on all ranks but the leading one.
  void catch_stops(const char* answered = nullptr);
  /// Returns what was received since the first live instance was constructed. Any thread may call it.
  SignalRequests asked() const;
  /// Records a stop as if `signal` had come: SIGPIPE, where writing showed that the reader is gone.
  void ask_to_stop(int signal) const;
  /// Throws StoppedError "SIGTERM: `then`" if a stop was asked for.
  void throw_if_stopped(const std::string& then) const;

 private:
  bool catches_stops_ = false;
};

/// Returns "SIGTERM", "SIGINT", "SIGHUP" or "SIGPIPE".
const char* name_of_stop(int signal);

}  // namespace fsdp::comm
