// SPDX-License-Identifier: Apache-2.0
/// @file
/// Ranks are threads of one process: each reads its peers' memory directly. The default on one machine.
///
/// A collective publishes addresses; every rank then copies or sums its own part from where the peers have it. Nothing
/// is packed, nothing is sent. Waiting ranks spin for some microseconds, then sleep, so that ranks may outnumber cores.
/// Ranks of an asynchronous device share it: their hosts meet in the same way, and each has its own queue do its part.
#pragma once

#include <functional>
#include <memory>
#include <string>
#include <string_view>
#include <utility>

#include <comm/backend.hpp>
#include <comm/launch.hpp>
#include <comm/queued_core.hpp>
#include <comm/threads_rank.hpp>
#include <fsdp/core/error.hpp>
#include <fsdp/device/cpu.hpp>

namespace fsdp::comm {

/// Runs f(core) on `ranks` threads. When one throws, the others' collectives throw CollectiveError, and the first
/// failure is thrown here after all have ended. Returns the first status that is not 0, by rank.
int run_threads(int ranks, const Options& options, const std::function<int(std::unique_ptr<ThreadsRank>)>& f);

/// Ranks are threads of this process, which read each other's memory.
template <class DeviceType = device::Cpu>
class Threads : public Backend<CoreOf<ThreadsRank, DeviceType>, DeviceType> {
  using Core = CoreOf<ThreadsRank, DeviceType>;

 public:
  static constexpr std::string_view name = "threads";
  std::string text() const { return message(name, ":", this->size()); }

  Threads split(int color) { return Threads(this->core().split(color)); }

  /// Starts the ranks; see run_threads. Returns f's status.
  template <class F>
  static int run(int ranks, const Options& options, F f) {
    return run_threads(ranks, options, [&f](std::unique_ptr<ThreadsRank> rank) {
      Threads communicator(comm::core_of<DeviceType>(std::move(rank)));
      return run_rank(f, communicator);
    });
  }

 private:
  explicit Threads(std::unique_ptr<Core> core) : Backend<Core, DeviceType>(std::move(core)) {}
};

template <class DeviceType>
inline constexpr bool supports_wire<Threads<DeviceType>, bf16> = true;

}  // namespace fsdp::comm
