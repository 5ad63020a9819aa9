// SPDX-License-Identifier: Apache-2.0
/// @file
/// One rank alone: needs no launcher, moves bytes only where `local` does not lie in `full`.
#pragma once

#include <memory>
#include <string_view>
#include <utility>

#include <comm/backend.hpp>
#include <comm/launch.hpp>
#include <fsdp/device/cpu.hpp>

namespace fsdp::comm {

/// The core of Self: every transfer is done when start returns.
class SelfRank {
 public:
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

 private:
  Monitor monitor_;
  Transfer transfer_;
};

template <class DeviceType = device::Cpu>
class Self : public Backend<SelfRank, DeviceType> {
 public:
  static constexpr std::string_view name = "self";

  explicit Self(const Options& options = {}) : Self(std::make_unique<SelfRank>(options)) {}

  Self split(int color) { return Self(this->core().split(color)); }

  template <class F>
  static int run(const Options& options, F f) {
    Self self(options);
    return run_rank(f, self);
  }

 private:
  explicit Self(std::unique_ptr<SelfRank> core) : Backend<SelfRank, DeviceType>(std::move(core)) {}
};

template <class DeviceType>
inline constexpr bool supports_wire<Self<DeviceType>, bf16> = true;

}  // namespace fsdp::comm
