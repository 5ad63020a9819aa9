// SPDX-License-Identifier: Apache-2.0
/// @file
/// Queues and events of synchronous devices, whose operations are complete when they return.
///
/// On an asynchronous device a queue runs its work in order, concurrently with other queues and the host; an event is a
/// point in a queue. Code that orders queues by events is correct on both kinds of devices, and costs nothing on
/// synchronous devices.
#pragma once

#include <cstdint>
#include <string_view>

namespace fsdp::device {

/// A queue's scheduling priority, for devices that support it: the second argument of the queue's constructor.
enum class Priority : std::uint8_t {
  usual,
  first  ///< for collectives: more work depends on them than on a block of a matmul
};

/// A point in a queue's work, which has always been reached already.
struct ImmediateEvent {
  bool happened() const { return true; }
};

/// A queue whose work is complete when `enqueue` returns.
class ImmediateQueue {
 public:
  ImmediateQueue() = default;
  /// Ignores the name.
  explicit ImmediateQueue(std::string_view) {}

  /// Returns the point after all work enqueued so far.
  ImmediateEvent record() { return {}; }
  /// Makes work enqueued after this call start after `event`; does not block the host.
  void wait(ImmediateEvent) {}
  /// Blocks the host until all enqueued work is done.
  void synchronize() {}
};

}  // namespace fsdp::device
