// SPDX-License-Identifier: Apache-2.0
/// @file
/// What the launch functions of all backends share: `Backend::run(..., f)` calls f(communicator) on every rank.
#pragma once

#include <cstdlib>
#include <type_traits>

namespace fsdp::comm {

/// Whether this process was started by mpirun or another launcher of MPI processes.
inline bool launched_by_mpi() {
  return std::getenv("OMPI_COMM_WORLD_SIZE") != nullptr || std::getenv("PMI_RANK") != nullptr ||
         std::getenv("PMIX_RANK") != nullptr;
}

/// The exit status of one rank: what f returns where it returns an int, else 0.
template <class F, class C>
int run_rank(F& f, C& communicator) {
  if constexpr (std::is_convertible_v<std::invoke_result_t<F&, C&>, int>)
    return static_cast<int>(f(communicator));
  else
    return f(communicator), 0;
}

}  // namespace fsdp::comm
