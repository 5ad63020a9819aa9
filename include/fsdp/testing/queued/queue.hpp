// SPDX-License-Identifier: Apache-2.0
/// @file
/// Queues as threads: operations run in order but later, with random pauses, concurrently with the host and other
/// queues.
#pragma once

#include <chrono>
#include <cstddef>
#include <cstdint>
#include <functional>
#include <memory>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include <tessera/fsdp/device/cpu.hpp>
#include <tessera/fsdp/testing/queued/order.hpp>

namespace fsdp::testing {

class WorkQueue;
class WorkCapture;
struct CapturedPoint;

/// A point in a queue's work, with the clock of all work that is done at that point.
class QueuedEvent {
 public:
  bool happened() const;

 private:
  friend class WorkQueue;
  friend class WorkCapture;
  struct State;
  std::shared_ptr<State> state_;             ///< null: the event has completed
  std::shared_ptr<CapturedPoint> captured_;  ///< set if it was recorded during the capture of a graph
};

/// Numbers of events, grouped by the points at which queues waited for them.
using EventPoints = std::vector<std::vector<std::int64_t>>;

/// One range of memory that an operation touches.
struct Access {
  const void* begin = nullptr;
  std::int64_t bytes = 0;
  bool writes = false;
};

/// Captured work, which can be launched again as a whole.
class WorkGraph {
 public:
  void launch(WorkQueue& queue) const;

 private:
  friend class WorkQueue;
  std::shared_ptr<WorkCapture> kept_;
};

/// A queue of work. Only one host thread may enqueue work on it.
class WorkQueue {
 public:
  explicit WorkQueue(std::string_view name = "queue");
  WorkQueue(WorkQueue&&) noexcept;
  ~WorkQueue();

  QueuedEvent record();
  void wait(const QueuedEvent& event);
  /// Waits for all work. Rethrows the exception of an operation.
  void synchronize();

  /// Enqueues an operation, which will run on a CPU stream of one thread, and checks its accesses against all other
  /// accesses.
  void submit(const char* operation, std::span<const Access> accesses, std::function<void(device::Cpu::Stream&)> work);

  /// Captures the work that `ask` enqueues on this queue and on queues that wait for its events, as a CUDA graph would.
  /// Throws Error for a call that would break the capture or would silently be omitted from the graph.
  WorkGraph capture(const std::function<void()>& ask);

  /// Waits for all work on all queues of the process.
  static void drain_all();

  /// For tests: every operation takes at least `pace`, and the host waits before it is more than `most_ahead`
  /// operations ahead of a queue (0: it never waits), as if the launch queue of a GPU were full. Applies to all
  /// threads.
  static void slow_down(std::chrono::microseconds pace, std::uint64_t most_ahead);

  // For tests: access to the events that the calling host thread's schedule records, numbered by queue.

  /// Clears the recorded points. Events with the numbers `events` that are recorded from now on will have no effect on
  /// queues that wait for them.
  static void leave_out(const std::vector<std::int64_t>& events);
  /// Sets whether accesses are only checked and no operation runs. Applies to all threads.
  static void check_only(bool on);
  /// Returns the events for which queues of this host waited with effect, grouped by point. Events for which a queue
  /// waits between the same two operations form one group, since one of them may cover the others.
  static EventPoints points();
  /// Clears the events recorded for `points`.
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
