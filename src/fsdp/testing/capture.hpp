// SPDX-License-Identifier: Apache-2.0
/// @file
/// Graph capture under CUDA's rules: work on queues is recorded instead of executed, and enqueued again by every
/// launch.
///
/// Calls that would break a capture throw. So do calls that CUDA accepts but omits from the graph, such as work on a
/// queue that is not part of the capture. The order of a launch's accesses is checked as for any other work.
#pragma once

#include <cstddef>
#include <functional>
#include <map>
#include <memory>
#include <span>
#include <vector>

#include <tessera/fsdp/testing/queued/queue.hpp>

namespace fsdp::testing {

/// An event of captured work. Each launch records a separate event.
struct CapturedPoint {
  Clock clock;                         ///< at the time of capture
  std::vector<QueuedEvent> by_launch;  ///< recorded events, one for each launch
};

class WorkCapture {
 public:
  explicit WorkCapture(WorkQueue& origin);
  WorkCapture(const WorkCapture&) = delete;
  WorkCapture& operator=(const WorkCapture&) = delete;

  /// The capture that the calling thread has started, or nullptr.
  static WorkCapture* of_this_host();
  /// Throws Error if the calling thread is capturing, because `what` would break the capture.
  static void refuse(const char* what);

  /// Calls `ask` and records the work that it enqueues.
  void capture(const std::function<void()>& ask);
  QueuedEvent record(WorkQueue& queue);
  void wait(WorkQueue& queue, const QueuedEvent& event);
  void submit(WorkQueue& queue, const char* operation, std::span<const Access> accesses,
              const std::function<void(device::Cpu::Stream&)>& work);
  void at_launch(WorkQueue& queue, const std::function<void()>& work);

  /// Launches the work. If several ranks captured together, waits until the other hosts launch too.
  void launch(WorkQueue& origin);

 private:
  using Call = std::function<void(WorkQueue& queue, std::size_t launch)>;
  struct Queue {
    std::string name;
    Clock clock;
    std::shared_ptr<WorkQueue> own;  ///< the queue on which launches run; null for the origin
  };
  struct Asked {
    std::size_t queue;
    Call call;
  };

  Queue& part(WorkQueue& queue, const char* what);

  std::size_t origin_;
  std::map<std::size_t, Queue> queues_;
  std::vector<Asked> calls_;
  std::size_t launches_ = 0;
};

}  // namespace fsdp::testing
