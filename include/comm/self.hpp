// SPDX-License-Identifier: Apache-2.0
/// @file
/// The backend of a single rank. It needs no launcher, and copies only if `local` is not in place inside `full`. On an
/// asynchronous device it copies on its own queue.
#pragma once

#include <tessera/fsdp/core/language.hpp>  // must be included before all others

#include <memory>
#include <string_view>
#include <utility>
#include <vector>

#include <tessera/comm/backend.hpp>
#include <tessera/comm/queued_core.hpp>
#include <tessera/fsdp/device/cpu.hpp>

namespace fsdp::comm {

/// The core of Self. When `start` returns, the transfer is complete or, on an asynchronous device, enqueued.
class SelfRank {
 public:
  static constexpr std::string_view queue_name = "self";

  explicit SelfRank(const Options& options) { monitor_.options = options; }

  int rank() const { return 0; }
  int size() const { return 1; }
  Monitor& monitor() { return monitor_; }
  const Monitor& monitor() const { return monitor_; }
  std::int64_t scratch_bytes() const { return 0; }

  Transfer& prepare() { return transfer_; }
  Ticket start();
  bool test(Ticket) const { return true; }
  void wait(Ticket) const {}
  void abandon(Ticket) const noexcept {}
  std::unique_ptr<SelfRank> split(int) const { return std::make_unique<SelfRank>(monitor_.options); }

  // Functions for asynchronous devices:
  void move_with(AnyQueue queue) { queue_ = std::move(queue); }
  void after(AnyEvent event) { after_.push_back(std::move(event)); }
  AnyEvent done(Ticket) const { return done_; }
  void wait_for(const AnyEvent& event) const;

 private:
  void queue_transfer();

  Monitor monitor_;
  Transfer transfer_;
  AnyQueue queue_;  ///< empty if the host moves the data
  std::vector<AnyEvent> after_;
  AnyEvent done_;  ///< completion event of the last transfer; implies completion of all earlier transfers
};

/// A communicator of one rank. Gathers and reductions are local copies, or nothing if the source is the destination.
template <class DeviceType = device::Cpu>
class Self : public Backend<CoreOf<SelfRank, DeviceType>, DeviceType> {
  using Core = CoreOf<SelfRank, DeviceType>;

 public:
  static constexpr std::string_view name = "self";

  /// Uses only `options.record` and `options.before`, and `options.device_deadline` on an asynchronous device.
  explicit Self(const Options& options = {}) : Self(comm::core_of<DeviceType>(std::make_unique<SelfRank>(options))) {}

  Self split(int color) { return Self(this->core().split(color)); }

  /// Runs f(communicator) on the calling thread. Returns f's status.
  template <class F>
  static int run(const Options& options, F f) {
    Self self(options);
    return run_rank(f, self);
  }

 private:
  explicit Self(std::unique_ptr<Core> core) : Backend<Core, DeviceType>(std::move(core)) {}
};

template <class DeviceType>
inline constexpr bool supports_wire<Self<DeviceType>, bf16> = true;

}  // namespace fsdp::comm
