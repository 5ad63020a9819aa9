// SPDX-License-Identifier: Apache-2.0
/// @file
/// Queues as threads: operations run in order, later, with random pauses, beside the host and other queues.
#pragma once

#include <cstddef>
#include <cstdint>
#include <functional>
#include <memory>
#include <span>
#include <string_view>
#include <vector>

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

/// Numbers of events, by the points at which queues waited for them.
using EventPoints = std::vector<std::vector<std::int64_t>>;

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

  // For tests: the events that the calling host thread's schedule records, numbered by queue.

  /// Forgets those so far; `events` of the next ones will be waited for by nobody.
  static void leave_out(const std::vector<std::int64_t>& events);
  /// Whether accesses are only checked, and nothing runs. For all threads.
  static void check_only(bool on);
  /// Those that this host's queues waited for, and learnt something by it, point by point: what a queue waits for
  /// between two operations stands together, since one of these events may cover the others.
  static EventPoints points();

 private:
  struct State;
  std::shared_ptr<State> state_;
};

}  // namespace fsdp::test
