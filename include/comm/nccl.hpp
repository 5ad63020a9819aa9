// SPDX-License-Identifier: Apache-2.0
/// @file
/// Ranks are processes, or threads, with a GPU each: collectives by NCCL, on a queue of their own.
///
/// This header does not need nccl.h: all calls go through a table of functions (comm/nccl_table.hpp). A program's is
/// `nccl::library()`, in tessera::nccl, which a build without NCCL omits.
///
/// Sums in float are NCCL's: the same bits in every run, in an order of its own. Contributions rounded to bf16 or f16
/// are summed here, in rank order.
#pragma once

#include <cstdint>
#include <memory>
#include <string_view>
#include <utility>

#include <comm/backend.hpp>
#include <comm/launch.hpp>
#include <comm/nccl_rank.hpp>
#include <comm/queued_core.hpp>
#include <comm/rendezvous.hpp>
#include <fsdp/device/cuda.hpp>

namespace fsdp::comm {

/// Ranks have a GPU each and NCCL moves; collectives run on a queue of their own.
template <class DeviceType = device::Cuda>
class Nccl : public Backend<QueuedCore<NcclRank, DeviceType>, DeviceType> {
  using Core = QueuedCore<NcclRank, DeviceType>;

 public:
  static constexpr std::string_view name = "nccl";
  static constexpr bool device_for_each_rank = true;  ///< none shares its memory with another
  static constexpr bool can_be_captured = true;       ///< see comm::can_be_captured

  /// Returns when all ranks have come. Throws CollectiveError at the deadline or where NCCL cannot connect them.
  Nccl(const nccl::Table& table, const nccl::Seat& seat, const Options& options)
      : Nccl(std::make_unique<Core>(std::make_unique<NcclRank>(table, seat, options))) {}

  Nccl split(int color) { return Nccl(this->core().split(color)); }
  /// See comm::shared_memory: from ncclMemAlloc, and registered, so that NCCL moves it without a copy.
  std::shared_ptr<std::byte> shared_memory(std::int64_t bytes) { return this->core().erased().shared_memory(bytes); }
  /// What scratch_bytes() is with so many ranks, for the dry run.
  static std::int64_t scratch_bytes_for(int ranks) { return NcclRank::scratch_bytes_for(ranks); }

  /// The same, over the library that is installed.
  template <class F>
  static int run(const Options& options, F f) {
    return run(nccl::library(), options, std::move(f));
  }
  /// One rank of a job that torchrun started, or one alone.
  template <class F>
  static int run(const nccl::Table& table, const Options& options, F f) {
    return run(table, torchrun_place(), options, std::move(f));
  }
  /// One rank of a job that another launcher started. Each takes the device of its local rank.
  template <class F>
  static int run(const nccl::Table& table, const JobPlace& place, const Options& options, F f) {
    choose_device(place);
    nccl::Seat seat{.rank = place.rank, .size = place.size};
    if (place.rank == 0) seat.id = nccl::make_id(table);
    meet_over_tcp({.rank = place.rank, .size = place.size, .deadline = options.deadline}, place.address, place.port,
                  seat.id);
    Nccl communicator(table, seat, options);
    return run_rank(f, communicator);
  }

 private:
  /// Devices that a process chooses among are those of its machine; others are as many as anybody wants.
  static void choose_device(const JobPlace& place) {
    if constexpr (requires { DeviceType::select(DeviceType::count()); }) {
      require_devices(place, DeviceType::count());
      DeviceType::select(place.local_rank);
    }
  }

  explicit Nccl(std::unique_ptr<Core> core) : Backend<Core, DeviceType>(std::move(core)) {}
};

template <class DeviceType>
inline constexpr bool supports_wire<Nccl<DeviceType>, bf16> = true;
template <class DeviceType>
inline constexpr bool supports_wire<Nccl<DeviceType>, f16> = true;

}  // namespace fsdp::comm
