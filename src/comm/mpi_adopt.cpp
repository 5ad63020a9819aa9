// SPDX-License-Identifier: Apache-2.0
/// @file
/// Mpi::adopt: its requirements on the program that has initialised MPI.
#include "guest.hpp"
#include "mpi_engine.hpp"
#include "mpi_library.hpp"

namespace fsdp::comm {
namespace {

void require_usable_mpi() {
  int initialized = 0, finalized = 0;
  MPI_Initialized(&initialized);
  MPI_Finalized(&finalized);
  require<InputError>(initialized != 0 && finalized == 0, "mpi: a communicator is adopted while MPI is ",
                      finalized != 0 ? "finalized already" : "not initialised",
                      "; adopt it between MPI_Init_thread and MPI_Finalize");
  int level = MPI_THREAD_SINGLE, is_main = 0;
  MPI_Query_thread(&level);
  MPI_Is_thread_main(&is_main);
  require<InputError>(
      level > MPI_THREAD_SINGLE,
      "mpi: MPI was initialised for a program of one thread, and the library's kernels have threads; call "
      "MPI_Init_thread with MPI_THREAD_FUNNELED or more instead of MPI_Init");
  require<InputError>(
      level > MPI_THREAD_FUNNELED || is_main != 0,
      "mpi: a communicator is adopted on another thread than MPI's main thread, and MPI was initialised "
      "with MPI_THREAD_FUNNELED; ask MPI_Init_thread for MPI_THREAD_SERIALIZED or more");
}

void require_usable(MPI_Comm communicator) {
  require<InputError>(communicator != MPI_COMM_NULL,
                      "mpi: MPI_COMM_NULL is adopted; call adopt only on processes that are in the communicator");
  int inter = 0;
  check_mpi(MPI_Comm_test_inter(communicator, &inter), "MPI_Comm_test_inter");
  require<InputError>(inter == 0, "mpi: an inter-communicator is adopted; merge it first, with MPI_Intercomm_merge");
}

}  // namespace

std::unique_ptr<MpiRank> MpiRank::adopt(const void* communicator, std::size_t bytes, const Options& options) {
  require<InputError>(bytes == sizeof(MPI_Comm), "mpi: the program's MPI_Comm has ", bytes, " bytes, the library's ",
                      sizeof(MPI_Comm), "; build both with the same MPI");
  require_usable_mpi();
  require_usable(*static_cast<const MPI_Comm*>(communicator));
  Options of_guest = options;
  of_guest.threads = threads_of_guest(options);
  return std::make_unique<MpiRank>(Messages(communicator, options.deadline), of_guest, nullptr);
}

}  // namespace fsdp::comm
