// SPDX-License-Identifier: Apache-2.0
/// @file
/// What ranks on a host's own threads and processes have in common.
#pragma once

#include <algorithm>

#include <tessera/comm/monitor.hpp>
#include <tessera/fsdp/core/error.hpp>

namespace fsdp::comm {

/// Returns the OpenMP threads of a guest's copies and sums: one, unless the options say otherwise. Throws InputError
/// for a negative number.
inline int threads_of_guest(const Options& options) {
  require<InputError>(options.threads >= 0, "communicator: ", options.threads, " threads; give 1 or more, or 0 for 1");
  return std::max(options.threads, 1);
}

}  // namespace fsdp::comm
