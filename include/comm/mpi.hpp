// SPDX-License-Identifier: Apache-2.0
/// @file
/// The MPI backend: ranks are processes, either of a Tessera program that mpirun started (Mpi::run) or of a host
/// program that has initialised MPI itself (Mpi::adopt). This header does not need mpi.h; a build without MPI omits
/// src/comm/mpi*.cpp, src/comm/launch/mpi*.cpp and src/comm/messages*.cpp.
///
/// Ranks of one machine read each other's `shared_memory` in place, as ranks of Threads do. All other data is sent in
/// point-to-point messages and summed here, in rank order: MPI has no bf16, and Open MPI's own nonblocking reductions
/// move 3 to 4 times as many bytes. The results of both are bit-identical. Messages progress only inside calls, so a
/// long computation should call `test` on pending requests. On an asynchronous device every collective is staged
/// through the host, one at a time.
#pragma once

#include <tessera/fsdp/core/language.hpp>  // must be included before all others

#include <cstdint>
#include <memory>
#include <span>
#include <string_view>
#include <type_traits>
#include <utility>

#include <tessera/comm/backend.hpp>
#include <tessera/comm/collectives.hpp>
#include <tessera/comm/mpi_rank.hpp>
#include <tessera/comm/queued_core.hpp>
#include <tessera/fsdp/core/function_ref.hpp>
#include <tessera/fsdp/device/cpu.hpp>

namespace fsdp::comm {

/// The launcher of Mpi, in src/comm/launch: initialises MPI, runs f and finalises. Returns f's status. An exception
/// prints one line with the rank and aborts all processes with its exit_status_of. If all ranks throw the same error
/// (other than CollectiveError) within two seconds, rank 0 alone prints it, and all ranks return its status.
int run_mpi(const Options& options, FunctionRef<int(std::unique_ptr<MpiRank>)> f);
/// Initialises MPI until the last copy of the returned pointer is destroyed; meanwhile run_mpi neither initialises nor
/// finalises it.
std::shared_ptr<void> keep_mpi(const Options& options);

namespace detail {

/// The type that mpi.h calls MPI_Comm: a pointer to a structure in Open MPI, an int in MPICH and its derivatives.
template <class T>
inline constexpr bool is_mpi_comm = std::is_same_v<T, int> ||
                                    (std::is_pointer_v<T> && std::is_class_v<std::remove_pointer_t<T>>);

}  // namespace detail

/// The core of Mpi on a device.
template <class Device>
using MpiCore = std::conditional_t<Device::asynchronous, QueuedCore<StagedMpiRank, Device>, MpiRank>;

/// A communicator over MPI processes. With Options::windows, ranks of one machine read each other's shared memory.
/// Asynchronous devices are staged through the host.
template <class DeviceType = device::Cpu>
class Mpi : public Backend<MpiCore<DeviceType>, DeviceType> {
  using Core = MpiCore<DeviceType>;

 public:
  static constexpr std::string_view name = "mpi";

  Mpi split(int color) { return Mpi(this->core().split(color)); }
  /// Makes a communicator of the same ranks for another device. Collective.
  template <class Other>
  Mpi<Other> on() requires(!DeviceType::asynchronous) {
    return Mpi<Other>(Mpi<Other>::core_of(this->core().split(0)));
  }
  /// See comm::shared_memory.
  std::shared_ptr<std::byte> shared_memory(std::int64_t bytes) requires(!DeviceType::asynchronous) {
    return this->core().shared_memory(bytes);
  }
  /// Calls MPI_Allgather on equal pieces: the reference for `tessera_bench comm`.
  void library_all_gather(std::span<const float> local, std::span<float> full) requires(!DeviceType::asynchronous) {
    this->core().library_all_gather(local, full);
  }
  /// Calls MPI_Reduce_scatter_block on equal pieces, for the same purpose.
  void library_reduce_scatter(std::span<const float> full, std::span<float> local) requires(!DeviceType::asynchronous) {
    this->core().library_reduce_scatter(full, local);
  }
  /// Returns the value of scratch_bytes() for a job of `ranks` ranks, for the dry run.
  static std::int64_t scratch_bytes_for(int ranks) {
    return DeviceType::asynchronous ? 0 : MpiRank::scratch_bytes_for(ranks);
  }

  /// Makes a communicator of the processes of `communicator`, an MPI_Comm, in a program that initialises MPI itself. It
  /// works on a duplicate; they may be a subset of the job's processes. Collective. It installs no handlers, prints
  /// nothing and ends no process: errors are exceptions, also on the other ranks. After a CollectiveError the program
  /// may continue and adopt the same `communicator` again, unless adopt itself missed the deadline. A peer that has not
  /// called MPI for 10 s by then may still be receiving a message: keep that collective's memory until it has finished.
  ///
  /// MPI must be initialised with at least MPI_THREAD_FUNNELED; if with exactly that level, this must be MPI's main
  /// thread. Otherwise throws InputError. Only one thread at a time may use a communicator and the communicators split
  /// from it, or free its shared memory. Destroy it before MPI_Finalize.
  template <class MpiComm>
  static Mpi adopt(const MpiComm& communicator, const Options& options = {}) {
    static_assert(detail::is_mpi_comm<MpiComm>, "fsdp: adopt takes an MPI_Comm of mpi.h itself, not its address");
    return Mpi(core_of(MpiRank::adopt(&communicator, sizeof communicator, options)));
  }

  /// Prepares the process for several calls of `run`, one after another, since a process can initialise MPI once. Keep
  /// the returned pointer until the last call has ended, in the thread that called this.
  static std::shared_ptr<void> keep(const Options& options) { return keep_mpi(options); }

  /// Runs f(communicator) on this process's rank; see run_mpi. Returns f's status.
  template <class F>
  static int run(const Options& options, F f) {
    return run_each(options, [&f](Mpi& communicator) { return run_rank(f, communicator); });
  }

 private:
  static int run_each(const Options& options, FunctionRef<int(Mpi&)> f) {
    return run_mpi(options, [&f](std::unique_ptr<MpiRank> rank) {
      Mpi communicator(core_of(std::move(rank)));
      return f(communicator);
    });
  }
  template <class Other>
  friend class Mpi;
  explicit Mpi(std::unique_ptr<Core> core) : Backend<Core, DeviceType>(std::move(core)) {}

  static std::unique_ptr<Core> core_of(std::unique_ptr<MpiRank> rank) {
    if constexpr (DeviceType::asynchronous)
      return std::make_unique<Core>(std::make_unique<StagedMpiRank>(std::move(rank)));
    else
      return rank;
  }
};

template <class DeviceType>
inline constexpr bool supports_wire<Mpi<DeviceType>, bf16> = true;

FSDP_BACKEND(extern template, MpiRank, device::Cpu, Mpi<>)

}  // namespace fsdp::comm
