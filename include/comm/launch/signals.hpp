// SPDX-License-Identifier: Apache-2.0
/// @file
/// Deferred signals: SIGTERM, SIGINT and SIGHUP request that a long run end, SIGUSR1 that it save.
///
/// The handler only records the signal. Ranks receive signals at different moments, so all ranks of a run must agree on
/// the reaction (tessera/fsdp/execution/count_exchange.hpp).
#pragma once

#include <string>

#include <tessera/comm/stopped.hpp>

namespace fsdp::comm {

/// Records this process's signals while at least one instance is alive; restores the previous handlers afterwards. A
/// second SIGTERM or SIGINT ends the process immediately, with status 128 + signal, unless it comes within a second of
/// the first: a terminal and a launcher may both send one. A SIGHUP never does, since a lost terminal sends several. If
/// SIGHUP was ignored before, as under nohup, it stays ignored; SIGINT and SIGTERM are caught even then, since shells
/// ignore SIGINT in commands that a script starts with `&`. Meanwhile, writing into a pipe without a reader is an error
/// (EPIPE) instead of a signal. Ranks that are threads have one instance each.
class CatchSignals {
 public:
  /// Selects the constructor of an instance that leaves SIGTERM, SIGINT and SIGHUP as they are until `catch_stops`.
  struct Later {};

  CatchSignals() : CatchSignals(Later()) { catch_stops(); }
  /// Catches only SIGUSR1 and SIGPIPE.
  explicit CatchSignals(Later later);
  CatchSignals(const CatchSignals&) = delete;
  CatchSignals& operator=(const CatchSignals&) = delete;
  ~CatchSignals();

  /// Catches SIGTERM, SIGINT and SIGHUP from now on; call it once. `answered`: a literal which the signal handler
  /// prints after the name of the first SIGTERM or SIGINT; null on all ranks except the leading one.
  void catch_stops(const char* answered = nullptr);
  /// Returns the requests received since the first live instance was constructed. Any thread may call it.
  SignalRequests asked() const;
  /// Records a stop request as if `signal` had been received: SIGPIPE, if a failed write showed that the reader is
  /// gone.
  void ask_to_stop(int signal) const;
  /// Throws StoppedError "SIGTERM: `then`" if a stop was requested.
  void throw_if_stopped(const std::string& then) const;

 private:
  bool catches_stops_ = false;
};

/// Returns "SIGTERM", "SIGINT", "SIGHUP" or "SIGPIPE".
const char* name_of_stop(int signal);

}  // namespace fsdp::comm
