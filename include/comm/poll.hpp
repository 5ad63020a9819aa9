// SPDX-License-Identifier: Apache-2.0
/// @file
/// Deadlines, and polling with back-off, for conditions that send no notification: a device event, a file, a library's
/// state.
#pragma once

#include <chrono>
#include <thread>

namespace fsdp::comm {

/// Returns begin + deadline, or the clock's largest time point if the sum would overflow: a deadline may be as long as
/// its type allows.
inline std::chrono::steady_clock::time_point deadline_after(std::chrono::steady_clock::time_point begin,
                                                            std::chrono::milliseconds deadline) {
  using Time = std::chrono::steady_clock::time_point;
  if (deadline.count() <= 0) return begin;
  const auto longest = std::chrono::duration_cast<std::chrono::milliseconds>(Time::max() - begin);
  return deadline < longest ? begin + deadline : Time::max();
}

/// Polls `done` until it returns true; after 500 polls sleeps 20 us between polls. Returns false if the deadline passes
/// first.
template <class Done>
bool poll_until(std::chrono::steady_clock::time_point deadline, const Done& done) {
  constexpr int eager = 500;
  for (int asked = 0; !done(); ++asked) {
    if (std::chrono::steady_clock::now() >= deadline) return false;
    if (asked < eager)
      std::this_thread::yield();
    else
      std::this_thread::sleep_for(std::chrono::microseconds(20));
  }
  return true;
}

}  // namespace fsdp::comm
