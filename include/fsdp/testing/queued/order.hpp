// SPDX-License-Identifier: Apache-2.0
/// @file
/// The happened-before order of queues' work: vector clocks, and a detector of unordered memory accesses (races).
///
/// The clock of a queue specifies how much of every queue's work is done before its next operation starts. Two accesses
/// to the same bytes, at least one of them a write, must be ordered. The second access is checked when it is enqueued,
/// independently of the order in which the queues actually run. Idea: FastTrack (Flanagan and Freund 2009), with queues
/// in place of threads.
#pragma once

#include <cstddef>
#include <cstdint>
#include <map>
#include <mutex>
#include <string>
#include <vector>

namespace fsdp::testing {

/// A vector clock: one position for each queue.
class Clock {
 public:
  std::uint64_t of(std::size_t queue) const { return queue < positions_.size() ? positions_[queue] : 0; }
  std::uint64_t advance(std::size_t queue) {
    grow(queue);
    return ++positions_[queue];
  }
  /// Sets the position of every queue to the later one of both clocks. Returns whether any position changed.
  bool join(const Clock& other);
  bool knows(const Clock& other) const;

 private:
  void grow(std::size_t queue) {
    if (queue >= positions_.size()) positions_.resize(queue + 1);
  }
  std::vector<std::uint64_t> positions_;
};

/// One operation of a queue.
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
  /// Starts to track an allocated range.
  void watch(const void* begin, std::int64_t bytes);
  /// Stops tracking a freed range.
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

}  // namespace fsdp::testing
