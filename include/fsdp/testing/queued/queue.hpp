// SPDX-License-Identifier: Apache-2.0
/// @file
/// Queues as threads: operations run in order, later, with random pauses, beside the host and other queues.
#pragma once

#include <cstddef>
#include <cstdint>
#include <functional>
#include <memory>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include <fsdp/device/cpu.hpp>
#include <fsdp/testing/queued/order.hpp>

namespace fsdp::testing {

class WorkQueue;
class WorkCapture;
struct CapturedPoint;

/// A point in a queue's work, with the clock of all that is over by then.
class QueuedEvent {
 public:
  bool happened() const;

 private:
  friend class WorkQueue;
  friend class WorkCapture;
  struct State;
  std::shared_ptr<State> state_;             ///< none: has happened
  std::shared_ptr<CapturedPoint> captured_;  ///< where it was recorded while a graph was captured
};

/// Numbers of events, by the points at which queues waited for them.
using EventPoints = std::vector<std::vector<std::int64_t>>;

/// One range of memory that an operation touches.
struct Access {
  const void* begin = nullptr;
  std::int64_t bytes = 0;
  bool writes = false;
};

/// Kept work, to be launched again as one.
class WorkGraph {
 public:
  void launch(WorkQueue& queue) const;

 private:
  friend class WorkQueue;
  std::shared_ptr<WorkCapture> kept_;
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

  /// Keeps what `ask` asks of this queue and of those that wait for its events, as a CUDA graph would; throws Error
  /// for what would break the capture, or be left out of the graph without a word.
  WorkGraph capture(const std::function<void()>& ask);

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
  /// Those so far are left out of `points`.
  static void forget_points();

 private:
  friend class WorkCapture;
  struct State;
  std::size_t id() const;
  const std::string& name() const;
  QueuedEvent record_now();
  void wait_now(const QueuedEvent& event);
  void submit_now(const char* operation, std::span<const Access> accesses,
                  std::function<void(device::Cpu::Stream&)> work);

  std::shared_ptr<State> state_;
};

}  // namespace fsdp::testing
