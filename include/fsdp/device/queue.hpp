// SPDX-License-Identifier: Apache-2.0
/// @file
/// Order among a device's operations: queues and events, for devices whose operations are done when they return.
///
/// On an asynchronous device a queue is work that runs in order, beside other queues and the host; an event is a point
/// in a queue. Code that orders its queues by events is right on both kinds, and costs nothing here.
#pragma once

#include <cstdint>
#include <string_view>

namespace fsdp::device {

/// Which queue's work begins where a device has room for one of two. A device that knows it takes it behind a queue's
/// name; others make all queues alike.
enum class Priority : std::uint8_t {
  usual,
  first  ///< of collectives: what waits for them is more than what waits for one block of a matmul
};

/// A point in a queue's work. A default one has happened.
struct ImmediateEvent {
  bool happened() const { return true; }
};

/// Work that is done when it is enqueued.
class ImmediateQueue {
 public:
  ImmediateQueue() = default;
  /// `name` is for people: traces and errors.
  explicit ImmediateQueue(std::string_view) {}

  /// The point after everything that was enqueued so far.
  ImmediateEvent record() { return {}; }
  /// What is enqueued from here on starts after `event`; the host goes on.
  void wait(ImmediateEvent) {}
  /// Returns when everything that was enqueued is done.
  void synchronize() {}
};

}  // namespace fsdp::device
