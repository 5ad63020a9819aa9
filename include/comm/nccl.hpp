// SPDX-License-Identifier: Apache-2.0
/// @file
/// The NCCL backend: ranks are processes or threads with one GPU each. Collectives run on their own CUDA stream.
///
/// This header does not need nccl.h: all calls go through a table of functions (tessera/comm/nccl_table.hpp). A program
/// normally uses `nccl::library()` of the target tessera::nccl, which a build without NCCL omits.
///
/// NCCL computes sums of float contributions, in its own order. With NVLS off, as `run` sets it, that order is the same
/// in every run on the same ranks and machines; with NVLS it may differ between calls. Contributions rounded to bf16 or
/// f16 are summed here, in rank order, and with SumOrder::ranks floats are too: under any settings, results are
/// bit-identical. Several communicators of a device (meshes of several axes) need LaunchOrder::implicit.
#pragma once

#include <tessera/fsdp/core/language.hpp>  // must be included before all others

#include <cstdint>
#include <exception>
#include <memory>
#include <optional>
#include <string>
#include <string_view>
#include <utility>

#include <tessera/comm/backend.hpp>
#include <tessera/comm/nccl_rank.hpp>
#include <tessera/comm/queued_core.hpp>
#include <tessera/comm/rendezvous.hpp>
#include <tessera/fsdp/core/error.hpp>
#include <tessera/fsdp/core/function_ref.hpp>
#include <tessera/fsdp/device/cuda.hpp>

namespace fsdp::comm {

/// A communicator over NCCL: each rank has its own GPU, and collectives run on their own queue.
template <class DeviceType = device::Cuda>
class Nccl : public Backend<QueuedCore<NcclRank, DeviceType>, DeviceType> {
  using Core = QueuedCore<NcclRank, DeviceType>;

 public:
  static constexpr std::string_view name = "nccl";
  static constexpr bool device_for_each_rank = true;  ///< no two ranks share a device's memory
  static constexpr bool can_be_captured = true;       ///< see comm::can_be_captured

  /// Connects the ranks; returns when all have called it. Throws CollectiveError at the deadline of the start or when
  /// NCCL cannot connect them.
  Nccl(const nccl::Table& table, const nccl::Seat& seat, const Options& options, const NcclStart& start = {})
      : Nccl(std::make_unique<Core>(std::make_unique<NcclRank>(table, seat, options, start))) {}

  /// Makes a communicator of the ranks of `host`, an ncclComm_t, in a program that initialises NCCL itself. It works on
  /// a duplicate with memory and a queue of its own (ncclCommSplit): nothing here ends or aborts `host`, and a failure
  /// aborts only the duplicate. Collective, on the device of `host`, which must have no call pending. It neither sets
  /// nor reads environment variables: `settings` are those that the program made before its first call of NCCL. Unless
  /// it passes LaunchOrder::implicit, `split` throws InputError on all ranks, and the program must complete its own
  /// collectives before it starts some here, and vice versa. Unless it passes Nvls::off, monitor().lost_promise
  /// contains a sentence. After a missed deadline in adopt itself, abort `host`; in a blocking `host`, NCCL waits there
  /// without a deadline.
  /// @{
  static Nccl adopt(nccl::Comm host, const nccl::Settings& settings = {}, const Options& options = {}) {
    return adopt(nccl::library(), host, settings, options);
  }
  static Nccl adopt(const nccl::Table& table, nccl::Comm host, const nccl::Settings& settings, const Options& options) {
    return Nccl(std::make_unique<Core>(NcclRank::adopt(table, host, settings, options)));
  }
  /// @}

  /// Throws InputError on all ranks if there are several and one has no LaunchOrder::implicit, or an NCCL before 2.26.
  Nccl split(int color) { return Nccl(this->core().split(color)); }
  /// See comm::shared_memory. Allocates with ncclMemAlloc and registers the memory with this communicator. NCCL moves
  /// data without a copy where the memory that it reads and the memory that it writes are both registered.
  std::shared_ptr<std::byte> shared_memory(std::int64_t bytes) { return this->core().erased().shared_memory(bytes); }
  /// Registers another communicator's shared_memory with this one too. Returns its new owner.
  std::shared_ptr<std::byte> register_memory(const std::shared_ptr<std::byte>& memory, std::int64_t bytes) {
    return this->core().erased().register_memory(memory, bytes);
  }
  /// Returns the value of scratch_bytes() for a job of `ranks` ranks, for the dry run.
  static std::int64_t scratch_bytes_for(int ranks) { return NcclRank::scratch_bytes_for(ranks); }

  /// Runs f(communicator) on this process's rank, with the NCCL that the program is linked with. Returns f's status.
  template <class F>
  static int run(const Options& options, F f) {
    return run(nccl::library(), options, std::move(f));
  }
  /// The same with the given table of functions. The rank's place comes from torchrun_place.
  template <class F>
  static int run(const nccl::Table& table, const Options& options, F f) {
    return run(table, torchrun_place(), options, std::move(f));
  }
  /// The same for a rank at `place`, which another launcher started. Calls nccl::set_environment, selects the device of
  /// its local rank, and binds the process to the cores near it; see device_index and bind_to_cores_near. Throws
  /// InputError, with the same message on all ranks, if a rank has no device of its own, its driver or NCCL is too old,
  /// or rank 0 cannot make NCCL's id.
  template <class F>
  static int run(const nccl::Table& table, const JobPlace& place, const Options& options, F f) {
    return run_at(table, place, options, [&f](Nccl& communicator) { return run_rank(f, communicator); });
  }

 private:
  static int run_at(const nccl::Table& table, const JobPlace& place, const Options& options,
                    FunctionRef<int(Nccl&)> f) {
    nccl::Seat seat{.rank = place.rank, .size = place.size};
    NcclStart start;
    Meeting meeting{.rank = place.rank, .size = place.size, .deadline = options.start_deadline};
    try {
      seat.settings = nccl::set_environment(options.fast_reductions);
      nccl::require_version(table);
      meeting.device = choose_device(place);
      if (place.rank == 0) seat.id = nccl::make_id(table);
    } catch (const std::exception& problem) {
      meeting.problem = problem.what();  // all ranks throw it, as an InputError
    }
    start.watch = rendezvous_over_tcp(meeting, place.address, place.port, seat.id);
    std::optional<Nccl> communicator;
    try {
      communicator.emplace(Nccl(table, seat, options, start));
      const int status = f(*communicator);
      communicator.reset();
      if (start.watch != nullptr) start.watch->leave(options.deadline);
      return status;
    } catch (const std::exception& error) {  // reported before the communicator is aborted, which takes time
      if (start.watch != nullptr) start.watch->report(error.what());
      throw;
    }
  }

  /// Selects the device of the local rank, if this device type can be selected, after binding the process near it.
  /// Returns the device's identity.
  static std::string choose_device(const JobPlace& place) {
    std::string identity;
    if constexpr (requires { DeviceType::select(DeviceType::count()); }) {
      const int device = device_index(place, DeviceType::count());
      if constexpr (requires { DeviceType::uuid(device); }) {
        bind_to_cores_near(DeviceType::bus_id(device));
        identity = device_identity(DeviceType::uuid(device));
      }
      DeviceType::select(device);
    }
    return identity;
  }

  explicit Nccl(std::unique_ptr<Core> core) : Backend<Core, DeviceType>(std::move(core)) {}
};

template <class DeviceType>
inline constexpr bool supports_wire<Nccl<DeviceType>, bf16> = true;
template <class DeviceType>
inline constexpr bool supports_wire<Nccl<DeviceType>, f16> = true;

}  // namespace fsdp::comm
