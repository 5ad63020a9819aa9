// SPDX-License-Identifier: Apache-2.0
/// @file
/// What hosts ask of queues, kept instead of done, and asked again at every launch: CUDA's rules of capturing a graph.
///
/// Calls that would break a capture throw; so do those that CUDA takes and that no graph would hold, such as work of a
/// queue that is not part of it. Launches are checked for the order of accesses as everything else is.
#pragma once

#include <cstddef>
#include <functional>
#include <map>
#include <memory>
#include <span>
#include <vector>

#include <fsdp/testing/queued/order.hpp>
#include <fsdp/testing/queued/queue.hpp>

namespace fsdp::testing {

/// An event of captured work; each launch has its own.
struct CapturedPoint {
  Clock clock;                         ///< while it was captured
  std::vector<QueuedEvent> by_launch;  ///< recorded
};

class WorkCapture {
 public:
  explicit WorkCapture(WorkQueue& origin);
  WorkCapture(const WorkCapture&) = delete;
  WorkCapture& operator=(const WorkCapture&) = delete;

  /// The one that the calling thread has begun, or nullptr.
  static WorkCapture* of_this_host();
  /// Throws Error where the calling thread captures, since `what` would break that.
  static void refuse(const char* what);

  /// Calls `ask`, whose calls to queues come here.
  void capture(const std::function<void()>& ask);
  QueuedEvent record(WorkQueue& queue);
  void wait(WorkQueue& queue, const QueuedEvent& event);
  void submit(WorkQueue& queue, const char* operation, std::span<const Access> accesses,
              const std::function<void(device::Cpu::Stream&)>& work);

  /// Where ranks capture together, waits for the other hosts' launches.
  void launch(WorkQueue& origin);

 private:
  using Call = std::function<void(WorkQueue& queue, std::size_t launch)>;
  struct Queue {
    std::string name;
    Clock clock;
    std::shared_ptr<WorkQueue> own;  ///< that launches run on; none for the origin
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
