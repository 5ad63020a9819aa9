// SPDX-License-Identifier: Apache-2.0
/// @file
/// Queues as threads: operations run in order, later, with random pauses, beside the host and other queues.
#pragma once

#include <cstddef>
#include <cstdint>
#include <functional>
#include <memory>
#include <string>
#include <string_view>

#include <fsdp/device/cpu.hpp>

#include <support/queued/order.hpp>

namespace fsdp::test {

/// A point in a queue's work, with the clock of all that is over by then.
class QueuedEvent {
 public:
  bool happened() const;

 private:
  friend class WorkQueue;
  struct State;
  std::shared_ptr<State> state_;  ///< none: has happened
};

/// One range of memory that an operation touches.
struct Access {
  const void* begin = nullptr;
  std::int64_t bytes = 0;
  bool writes = false;
};

/// Work of one queue. The host that queues it is one thread.
class WorkQueue {
 public:
  explicit WorkQueue(std::string_view name = "queue");
  WorkQueue(WorkQueue&&) noexcept;
  ~WorkQueue();

  QueuedEvent record();
  void wait(const QueuedEvent& event);
  /// Rethrows what an operation threw.
  void synchronize();

  /// Queues an operation, on a CPU stream of one thread, and checks its accesses against all others'.
  void submit(const char* operation, std::span<const Access> accesses, std::function<void(device::Cpu::Stream&)> work);

  /// Waits for everything that any queue of the process was asked for.
  static void drain_all();

  // For tests: waits of the calling host thread's queues for each other that bring news, but those of queues that do
  // nothing else ("joins").

  /// The n-th from now on is left out, -1: none. Starts counting again.
  static void leave_out_wait(std::int64_t n);
  /// Whether accesses are only checked, and nothing runs. For all threads.
  static void check_only(bool on);
  /// How many there were, and which one was left out, in words.
  static std::int64_t waits();
  static std::string left_out();

 private:
  struct State;
  std::shared_ptr<State> state_;
};

}  // namespace fsdp::test
