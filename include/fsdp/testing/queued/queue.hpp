// SPDX-License-Identifier: Apache-2.0
/// @file
/// Queues as threads: operations run in order but later, with random pauses, concurrently with the host and other
/// queues. A detector of unordered accesses (races) checks every access against the happened-before order of the
/// queues' work. The clock of a queue specifies how much of every queue's work is done before its next operation
/// starts. Two accesses to the same bytes, at least one of them a write, must be ordered. The second access is checked
/// when it is enqueued, independently of the order in which the queues actually run. Idea: FastTrack (Flanagan and
/// Freund 2009), with queues in place of threads.
#pragma once

#include <chrono>
#include <cstddef>
#include <cstdint>
#include <functional>
#include <map>
#include <memory>
#include <mutex>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include <tessera/fsdp/device/cpu.hpp>

namespace fsdp::testing {

/// A vector clock: one position for each queue.
class Clock {
 public:
  std::uint64_t of(std::size_t queue) const { return queue < positions_.size() ? positions_[queue] : 0; }
  std::uint64_t advance(std::size_t queue) {
    grow(queue);
    return ++positions_[queue];
  }
  /// Sets the position of every queue to the later one of both clocks.
  void join(const Clock& other);
  bool knows(const Clock& other) const;

 private:
  void grow(std::size_t queue) {
    if (queue >= positions_.size()) positions_.resize(queue + 1);
  }
  std::vector<std::uint64_t> positions_;
};

struct Moment {
  std::size_t queue = 0;
  std::uint64_t position = 0;
  std::string what;  ///< description, such as "rank 0 stream: matmul"
};

/// The history of accesses to the device's memory, by range. Host memory is not tracked, since nothing reports when it
/// is freed.
class MemoryOrder {
 public:
  static MemoryOrder& instance();

  /// Records and checks an access: `moment` reads or writes [begin, begin + bytes); `clock` is the clock of its queue.
  void touch(const void* begin, std::int64_t bytes, bool writes, const Moment& moment, const Clock& clock);
  void watch(const void* begin, std::int64_t bytes);
  void forget(const void* begin, std::int64_t bytes);

  /// Returns descriptions of the races found since the last call, at most a few.
  std::vector<std::string> take_races();

 private:
  struct History {
    std::uintptr_t end = 0;
    Moment written;             ///< last write; position 0: never written
    std::vector<Moment> reads;  ///< reads since the last write
  };
  using Ranges = std::map<std::uintptr_t, History>;

  Ranges::iterator split(std::uintptr_t at);
  void check(const Moment& earlier, const Moment& now, const Clock& clock, const char* how);

  std::mutex mutex_;
  Ranges ranges_;
  std::vector<std::string> races_;
};

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

  /// Calls `work` on the host now, or at every launch of the graph that it is captured in.
  void at_launch(const std::function<void()>& work);

  /// Captures the work that `ask` enqueues on this queue and on queues that wait for its events, as a CUDA graph would.
  /// Throws Error for a call that would break the capture or would silently be omitted from the graph.
  WorkGraph capture(const std::function<void()>& ask);

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

  std::shared_ptr<State> state_;
};

}  // namespace fsdp::testing
