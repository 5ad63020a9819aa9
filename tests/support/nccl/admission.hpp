// SPDX-License-Identifier: Apache-2.0
/// @file
/// Which collective kernel of a device may run: one at a time, as on a device whose multiprocessors one kernel fills.
///
/// With NCCL_LAUNCH_ORDER_IMPLICIT=1 kernels run in the order of the host's launches. Without it any ready kernel may
/// be next: some devices, which a seed draws, run the one that was launched first, and the others the last.
#pragma once

#include <bit>
#include <chrono>
#include <condition_variable>
#include <cstdint>
#include <map>
#include <mutex>
#include <set>

namespace fsdp::testing {

class NcclAdmission {
 public:
  using Clock = std::chrono::steady_clock;

  explicit NcclAdmission(int device) : device_(device) {}

  /// Returns the number of a launched kernel. Every number ends once.
  std::int64_t launch() {
    const std::lock_guard lock(mutex_);
    return *launched_.insert(next_++).first;
  }
  /// Waits until the kernel may run. Returns false once `gone()`.
  bool admit(std::int64_t kernel, bool ordered, std::uint64_t seed, const auto& gone) {
    std::unique_lock lock(mutex_);
    ready_[kernel] = Clock::now();
    while (!may_run(kernel, ordered, seed)) {
      lock.unlock();
      if (gone()) return false;  // it may lock the machine, under whose lock kernels are launched
      lock.lock();
      if (may_run(kernel, ordered, seed)) break;
      changed_.wait_for(lock, std::chrono::milliseconds(ordered ? 20 : 1));
    }
    resident_ = kernel;
    return true;
  }
  void end(std::int64_t kernel) {
    const std::lock_guard lock(mutex_);
    launched_.erase(kernel);
    ready_.erase(kernel);
    if (resident_ == kernel) resident_ = none;
    changed_.notify_all();
  }
  /// Whether a kernel waits because another one runs.
  bool is_contended() const {
    const std::lock_guard lock(mutex_);
    return resident_ != none && ready_.size() > 1;
  }

 private:
  static constexpr std::int64_t none = -1;

  bool may_run(std::int64_t kernel, bool ordered, std::uint64_t seed) const {
    if (resident_ != none) return false;
    if (ordered) return kernel == *launched_.begin();
    const bool latest_first = std::popcount(static_cast<std::uint64_t>(device_) * seed) % 2 == 1;
    const std::int64_t first = latest_first ? ready_.rbegin()->first : ready_.begin()->first;
    const auto delay = std::chrono::milliseconds(latest_first ? 50 : 3);  // in which others become ready
    return kernel == first && Clock::now() - ready_.begin()->second >= delay;
  }

  const int device_;
  mutable std::mutex mutex_;
  std::condition_variable changed_;
  std::int64_t next_ = 0, resident_ = none;
  std::set<std::int64_t> launched_;
  std::map<std::int64_t, Clock::time_point> ready_;  ///< kernels that wait or run, since when
};

}  // namespace fsdp::testing
