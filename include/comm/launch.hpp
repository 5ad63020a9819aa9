// SPDX-License-Identifier: Apache-2.0
/// @file
/// Parts shared by the launch functions of all backends: `Backend::run(..., f)` calls f(communicator) on every rank.
#pragma once

#include <cstdlib>
#include <exception>
#include <type_traits>

namespace fsdp::comm {

/// Exit statuses of a program, besides 128 + signal when a signal ended it. docs/faults.md lists their causes.
struct ExitStatus {
  static constexpr int done = 0;       ///< success
  static constexpr int failed = 1;     ///< output cannot be written, or an error of the program itself
  static constexpr int bad_input = 2;  ///< the user can fix it: InputError, MemoryError
  static constexpr int lost = 3;       ///< diverged (numbers that are not finite), or a lost rank
};

/// Returns the exit status of a program that `error` ends.
int exit_status_of(const std::exception& error);

/// Returns whether mpirun or another MPI launcher started this process.
inline bool launched_by_mpi() {
  return std::getenv("OMPI_COMM_WORLD_SIZE") != nullptr || std::getenv("PMI_RANK") != nullptr ||
         std::getenv("PMIX_RANK") != nullptr;
}

/// Calls f(communicator) and returns the rank's exit status: f's result if it converts to int, else 0.
template <class F, class C>
int run_rank(F& f, C& communicator) {
  if constexpr (std::is_convertible_v<std::invoke_result_t<F&, C&>, int>)
    return static_cast<int>(f(communicator));
  else
    return f(communicator), 0;
}

}  // namespace fsdp::comm
