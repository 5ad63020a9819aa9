// SPDX-License-Identifier: Apache-2.0
/// @file
/// Code shared by ranks that run inside a host program (ThreadRanks, Mpi::adopt).
#pragma once

#include <algorithm>

#include <tessera/comm/monitor.hpp>
#include <tessera/fsdp/core/error.hpp>

namespace fsdp::comm {

/// Returns the number of OpenMP threads for copies and sums of a rank inside a host program: Options::threads, or 1 if
/// it is not set. Throws InputError for a negative number.
inline int threads_of_guest(const Options& options) {
  require<InputError>(options.threads >= 0, "communicator: ", options.threads, " threads; give 1 or more, or 0 for 1");
  return std::max(options.threads, 1);
}

}  // namespace fsdp::comm
