// SPDX-License-Identifier: Apache-2.0
/// @file
/// A time limit for calls that do not have one, such as MPI_Init and MPI_Finalize when a rank hangs.
#pragma once

#include <chrono>
#include <string>
#include <string_view>
#include <thread>

namespace fsdp::comm {

/// Ends the process unless it is destroyed within `limit`: prints one line on stderr, which begins with `whom`, and
/// exits with status 3. `of`: a literal after "the deadline", such as " of the start".
class Watchdog {
 public:
  Watchdog(std::string whom, std::chrono::milliseconds limit, std::string_view of = "");

 private:
  std::jthread thread_;
};

}  // namespace fsdp::comm
