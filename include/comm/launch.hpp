// SPDX-License-Identifier: Apache-2.0
/// @file
/// What the launch functions of all backends share: `Backend::run(..., f)` calls f(communicator) on every rank.
#pragma once

#include <cstdlib>
#include <exception>
#include <type_traits>

namespace fsdp::comm {

/// Exit statuses of a program, besides 128 + signal where a signal ended it; docs/faults.md says when.
struct ExitStatus {
  static constexpr int done = 0;       ///< all that was asked for
  static constexpr int failed = 1;     ///< output, or an error of the program itself
  static constexpr int bad_input = 2;  ///< what the user can mend: InputError, MemoryError
  static constexpr int lost = 3;       ///< numbers that are not finite, or a rank that is lost
};

/// The status of a program that this exception ends.
int exit_status_of(const std::exception& error);

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
