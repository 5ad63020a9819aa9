// SPDX-License-Identifier: Apache-2.0
#include "threads_group.hpp"

#include <thread>

#if defined(__x86_64__)
#include <immintrin.h>
#endif

namespace fsdp::comm {
namespace {

/// Longer than the latency of a peer's notification, shorter than a scheduler time slice.
constexpr std::chrono::microseconds longest_spin{50};

void relax() {
#if defined(__x86_64__)
  _mm_pause();
#else
  std::this_thread::yield();
#endif
}

}  // namespace

void ThreadsWorld::notify() {
  version_.fetch_add(1);
  if (sleepers_.load() == 0) return;
  // A sleeper increments sleepers_ before it checks the version. Locking its mutex once ensures that it now sleeps.
  { const std::lock_guard lock(mutex_); }
  changed_.notify_all();
}

void ThreadsWorld::await_change(std::uint64_t seen, bool spin, Clock::time_point deadline) {
  // Yields between checks: the awaited peer may be waiting for this core.
  const Clock::time_point end = Clock::now() + (spin ? longest_spin : std::chrono::microseconds(0));
  do {
    for (int i = 0; i < (spin ? 32 : 1); ++i) {
      if (version() != seen) return;
      relax();
    }
    std::this_thread::yield();
  } while (Clock::now() < end);
  if (version() != seen) return;
  sleepers_.fetch_add(1);
  {
    std::unique_lock lock(mutex_);
    changed_.wait_until(lock, deadline, [&] { return version() != seen; });
  }
  sleepers_.fetch_sub(1);
}

void ThreadsWorld::poison(int rank, std::string_view reason) noexcept {
  {
    const std::lock_guard lock(mutex_);
    if (poisoned()) return;
    try {
      failure_ = reason;
    } catch (const std::exception&) {  // out of memory: failed_ is still set
    }
    failed_.store(rank);
  }
  notify();
}

std::string ThreadsWorld::failure() const {
  const std::lock_guard lock(mutex_);
  return failure_;
}

std::shared_ptr<ThreadsGroup> group_of_threads(int ranks) {
  constexpr int most = 65'536;  // each rank is a thread, and Linux allows fewer by default
  require<InputError>(ranks > 0 && ranks <= most, "threads communicator: ", ranks, " ranks were asked for; give 1 to ",
                      most);
  return std::make_shared<ThreadsGroup>(std::make_shared<ThreadsWorld>(), ranks);
}

}  // namespace fsdp::comm
