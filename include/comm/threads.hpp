// SPDX-License-Identifier: Apache-2.0
/// @file
/// The backend whose ranks are threads of one process and read each other's memory directly. The default on one
/// machine.
///
/// A collective publishes addresses; each rank then copies or sums its own part directly from its peers' memory,
/// without packing or sending. Waiting ranks spin for some microseconds, then sleep, so that there may be more ranks
/// than cores. On an asynchronous device all ranks share the device: the host threads synchronise in the same way, and
/// each rank enqueues its part on its own queue.
#pragma once

#include <tessera/fsdp/core/language.hpp>  // must be included before all others

#include <cstddef>
#include <cstdint>
#include <functional>
#include <memory>
#include <span>
#include <string>
#include <string_view>
#include <utility>

#include <tessera/comm/backend.hpp>
#include <tessera/comm/collectives.hpp>
#include <tessera/comm/queued_core.hpp>
#include <tessera/comm/threads_rank.hpp>
#include <tessera/fsdp/core/error.hpp>
#include <tessera/fsdp/device/cpu.hpp>

namespace fsdp::comm {

class ThreadRanks;

/// The launcher of Threads, in src/comm/launch: runs f(core) on `ranks` threads and joins them. Returns the nonzero
/// status of the lowest rank that has one, else 0. If one throws, the others' collectives throw CollectiveError; the
/// first failure is rethrown here after all threads have ended.
int run_threads(int ranks, const Options& options, const std::function<int(std::unique_ptr<ThreadsRank>)>& f);

/// A communicator of threads of this process, which read each other's memory.
template <class DeviceType = device::Cpu>
class Threads : public Backend<CoreOf<ThreadsRank, DeviceType>, DeviceType> {
  using Core = CoreOf<ThreadsRank, DeviceType>;

 public:
  static constexpr std::string_view name = "threads";
  std::string text() const { return message(name, ":", this->size()); }

  Threads split(int color) { return Threads(this->core().split(color)); }

  /// Runs f(communicator) on `ranks` threads; see run_threads for status and errors.
  template <class F>
  static int run(int ranks, const Options& options, F f) {
    return run_threads(ranks, options, [&f](std::unique_ptr<ThreadsRank> rank) {
      Threads communicator(comm::core_of<DeviceType>(std::move(rank)));
      return run_rank(f, communicator);
    });
  }

 private:
  friend class ThreadRanks;
  explicit Threads(std::unique_ptr<Core> core) : Backend<Core, DeviceType>(std::move(core)) {}
};

/// Collectives of small values that are compiled into the library.
/// @{
extern template void reduce(Threads<>&, std::span<std::int64_t>, Reduction, Label);
extern template void reduce(Threads<>&, std::span<double>, Reduction, Label);
extern template void broadcast(Threads<>&, std::span<std::byte>, int, Label);
extern template void gather_bytes(Threads<>&, std::span<const std::byte>, std::span<std::byte>, Label);
extern template void barrier(Threads<>&, Label);
/// @}

template <class DeviceType>
inline constexpr bool supports_wire<Threads<DeviceType>, bf16> = true;

}  // namespace fsdp::comm
