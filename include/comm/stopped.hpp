// SPDX-License-Identifier: Apache-2.0
/// @file
/// What signals ask of a run, as ranks exchange it. This header catches no signal; see tessera/comm/launch/signals.hpp.
#pragma once

#include <cstdint>
#include <string>

#include <tessera/fsdp/core/error.hpp>

namespace fsdp::comm {

/// Thrown where a signal ends work that has no step to finish. The program ends with status 128 + signal.
class StoppedError : public Error {
 public:
  /// The sentence: "SIGTERM: " and what became of the work.
  StoppedError(int signal, const std::string& sentence) : Error(sentence), signal_(signal) {}
  int signal_number() const { return signal_; }  ///< its number

 private:
  int signal_;
};

/// The signals that a rank has received.
struct SignalRequests {
  int stop = 0;            ///< the first signal that asks the run to end; 0: none came
  std::int64_t saves = 0;  ///< number of SIGUSR1 received

  friend bool operator==(const SignalRequests&, const SignalRequests&) = default;
};

}  // namespace fsdp::comm
