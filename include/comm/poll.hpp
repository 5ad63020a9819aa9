// SPDX-License-Identifier: Apache-2.0
/// @file
/// Waiting for what tells nobody that it has happened: an event of a device, a file, a library's state.
#pragma once

#include <chrono>
#include <thread>

namespace fsdp::comm {

/// Asks `done` again and again, less often after a while; false where the deadline comes first.
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
