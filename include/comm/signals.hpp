// SPDX-License-Identifier: Apache-2.0
/// @file
/// Signals that a long run answers at its next opportunity: SIGTERM and SIGINT ask it to end, SIGUSR1 to save.
///
/// A handler only remembers. Ranks get signals at different moments, so that a run must agree on what it does about
/// them (module/count_exchange.hpp).
#pragma once

#include <cstdint>

namespace fsdp::comm {

/// What signals have asked for since they are caught.
struct Asked {
  int stop = 0;            ///< SIGTERM or SIGINT: end; 0: neither came
  std::int64_t saves = 0;  ///< how often SIGUSR1 came

  friend bool operator==(const Asked&, const Asked&) = default;
};

/// While one of these lives, signals of this process are remembered. A second SIGTERM or SIGINT ends the process at
/// once, with status 128 + signal. Ranks that are threads have one each.
class CatchSignals {
 public:
  CatchSignals();
  CatchSignals(const CatchSignals&) = delete;
  CatchSignals& operator=(const CatchSignals&) = delete;
  ~CatchSignals();

  /// May be called at any time, by any thread.
  Asked asked() const;
};

/// "SIGTERM" or "SIGINT".
const char* name_of_stop(int signal);

}  // namespace fsdp::comm
