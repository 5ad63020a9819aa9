// SPDX-License-Identifier: Apache-2.0
/// @file
/// One rank alone: needs no launcher, moves bytes only where `local` does not lie in `full`; on an asynchronous device
/// by a queue of its own.
#pragma once

#include <memory>
#include <string_view>
#include <utility>
#include <vector>

#include <comm/any_queue.hpp>
#include <comm/backend.hpp>
#include <comm/launch.hpp>
#include <comm/queued_core.hpp>
#include <fsdp/device/cpu.hpp>

namespace fsdp::comm {

/// The core of Self: every transfer is done, or queued, when start returns.
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

  // Where a device's queue moves the tensors.
  void move_with(AnyQueue queue) { queue_ = std::move(queue); }
  void after(AnyEvent event) { after_.push_back(std::move(event)); }
  AnyEvent done(Ticket) const { return done_; }
  void wait_for(const AnyEvent& event) const;

 private:
  void queue_transfer();

  Monitor monitor_;
  Transfer transfer_;
  AnyQueue queue_;  ///< empty where the host moves
  std::vector<AnyEvent> after_;
  AnyEvent done_;  ///< of the last transfer, which will do for all before
};

/// One rank: gathers and reductions are local copies, or nothing where source and destination are the same memory.
template <class DeviceType = device::Cpu>
class Self : public Backend<CoreOf<SelfRank, DeviceType>, DeviceType> {
  using Core = CoreOf<SelfRank, DeviceType>;

 public:
  static constexpr std::string_view name = "self";

  /// Only `options.checks`, `record` and `before` matter.
  explicit Self(const Options& options = {}) : Self(comm::core_of<DeviceType>(std::make_unique<SelfRank>(options))) {}

  Self split(int color) { return Self(this->core().split(color)); }

  /// Runs f(communicator) on the calling thread. Returns its status.
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
