// SPDX-License-Identifier: Apache-2.0
/// @file
/// The requests that signals make of a run, in the form that ranks exchange. This header does not install signal
/// handlers; see tessera/comm/launch/signals.hpp.
#pragma once

#include <cstdint>
#include <string>

#include <tessera/fsdp/core/error.hpp>

namespace fsdp::comm {

/// Thrown if a signal ends work that is not divided into steps. The program ends with status 128 + signal.
class StoppedError : public Error {
 public:
  /// `sentence`: "SIGTERM: " followed by the outcome of the work.
  StoppedError(int signal, const std::string& sentence) : Error(sentence), signal_(signal) {}
  int signal_number() const { return signal_; }  ///< the number of the signal that ended the work

 private:
  int signal_;
};

/// The signals that a rank has received.
struct SignalRequests {
  int stop = 0;            ///< the first signal that asks the run to end; 0 if no such signal was received
  std::int64_t saves = 0;  ///< number of SIGUSR1 received

  friend bool operator==(const SignalRequests&, const SignalRequests&) = default;
};

}  // namespace fsdp::comm
