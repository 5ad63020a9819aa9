// SPDX-License-Identifier: Apache-2.0
/// @file
/// Polling with back-off, for conditions that send no notification: a device event, a file, a library's state.
#pragma once

#include <chrono>
#include <thread>

namespace fsdp::comm {

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
