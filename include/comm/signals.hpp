// SPDX-License-Identifier: Apache-2.0
/// @file
/// Deferred signals: SIGTERM and SIGINT ask a long run to end, SIGUSR1 asks it to save.
///
/// The handler only records the signal. Ranks receive signals at different moments, so a run must agree on its reaction
/// over all ranks (module/count_exchange.hpp).
#pragma once

#include <cstdint>

namespace fsdp::comm {

/// The signals received since the first CatchSignals was made.
struct Asked {
  int stop = 0;            ///< SIGTERM or SIGINT: the run should end; 0: neither came
  std::int64_t saves = 0;  ///< number of SIGUSR1 received

  friend bool operator==(const Asked&, const Asked&) = default;
};

/// Records this process's signals while at least one instance lives; restores the previous handlers afterwards. A
/// second SIGTERM or SIGINT ends the process at once, with status 128 + signal. Ranks that are threads have one
/// instance each.
class CatchSignals {
 public:
  CatchSignals();
  CatchSignals(const CatchSignals&) = delete;
  CatchSignals& operator=(const CatchSignals&) = delete;
  ~CatchSignals();

  /// Returns what was received so far. Any thread may call it.
  Asked asked() const;
};

/// Returns "SIGTERM" or "SIGINT".
const char* name_of_stop(int signal);

}  // namespace fsdp::comm
