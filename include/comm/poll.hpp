// SPDX-License-Identifier: Apache-2.0
/// @file
/// Deadlines, time measurements, and polling with back-off for conditions that send no notification: a device event, a
/// file, a library's state.
#pragma once

#include <chrono>
#include <optional>
#include <thread>

namespace fsdp::comm {

using Clock = std::chrono::steady_clock;
using Seconds = std::chrono::duration<double>;

/// Adds the time for which it is alive to `seconds`.
class Stopwatch {
 public:
  explicit Stopwatch(double& seconds) : seconds_(seconds), begin_(Clock::now()) {}
  Stopwatch(const Stopwatch&) = delete;
  Stopwatch& operator=(const Stopwatch&) = delete;
  ~Stopwatch() { seconds_ += Seconds(Clock::now() - begin_).count(); }

 private:
  double& seconds_;
  Clock::time_point begin_;
};

/// Returns begin + deadline, or the clock's largest time point if the sum would overflow: a deadline may be as long as
/// its type allows.
inline Clock::time_point deadline_after(Clock::time_point begin, std::chrono::milliseconds deadline) {
  if (deadline.count() <= 0) return begin;
  const auto longest = std::chrono::duration_cast<std::chrono::milliseconds>(Clock::time_point::max() - begin);
  return deadline < longest ? begin + deadline : Clock::time_point::max();
}

/// Polls `done` until it returns true; after 500 polls sleeps 20 us between polls. Returns false if the deadline passes
/// first.
template <class Done>
bool poll_until(Clock::time_point deadline, const Done& done) {
  constexpr int eager = 500;
  for (int asked = 0; !done(); ++asked) {
    if (Clock::now() >= deadline) return false;
    if (asked < eager)
      std::this_thread::yield();
    else
      std::this_thread::sleep_for(std::chrono::microseconds(20));
  }
  return true;
}

/// Polls like poll_until, for at most `limit`. Returns the time waited if that passes first.
template <class Done>
std::optional<Seconds> poll_in_vain(std::chrono::milliseconds limit, const Done& done) {
  const Clock::time_point begin = Clock::now();
  if (poll_until(deadline_after(begin, limit), done)) return std::nullopt;
  return Clock::now() - begin;
}

}  // namespace fsdp::comm
