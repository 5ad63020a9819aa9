// SPDX-License-Identifier: Apache-2.0
/// @file
/// The only file that includes mpi.h, and the error handling of MPI calls.
#pragma once

#include <array>
#include <string_view>

// Excludes the C++ bindings that MPI 3 removed; they would have to be linked.
#define OMPI_SKIP_MPICXX 1
#define MPICH_SKIP_MPICXX 1
#include <mpi.h>

#include <tessera/comm/monitor.hpp>

namespace fsdp::comm {

/// Throws CollectiveError with MPI's own text unless `code` is MPI_SUCCESS. `call`: name of the MPI function that
/// returned it.
inline void check_mpi(int code, const char* call) {
  if (code == MPI_SUCCESS) return;
  std::array<char, MPI_MAX_ERROR_STRING> text{};
  int length = 0;
  MPI_Error_string(code, text.data(), &length);
  throw CollectiveError(message(call, " failed: ", std::string_view(text.data(), static_cast<std::size_t>(length))));
}

}  // namespace fsdp::comm
