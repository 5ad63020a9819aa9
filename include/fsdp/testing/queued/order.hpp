// SPDX-License-Identifier: Apache-2.0
/// @file
/// What happened before what: vector clocks of queues, and a watch over memory that finds accesses in no order.
///
/// A queue's clock says how much of every queue's work is over before its next operation starts. Two accesses to the
/// same bytes, one of them a write, must be ordered; the later one is checked when it is queued, whatever order the
/// queues then really take. Idea: FastTrack (Flanagan and Freund 2009), with queues in place of threads.
#pragma once

#include <cstddef>
#include <cstdint>
#include <map>
#include <mutex>
#include <string>
#include <vector>

namespace fsdp::testing {

/// Positions by queue.
class Clock {
 public:
  std::uint64_t of(std::size_t queue) const { return queue < positions_.size() ? positions_[queue] : 0; }
  std::uint64_t advance(std::size_t queue) {
    grow(queue);
    return ++positions_[queue];
  }
  /// The later of both, everywhere; says whether that was news.
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
  std::string what;  ///< such as "rank 0 stream: matmul"
};

/// The device's memory, by ranges that have one history. The host's is not watched: nobody says when it is given back.
class MemoryOrder {
 public:
  static MemoryOrder& instance();

  /// `moment` reads or writes [begin, begin + bytes); `clock` is its queue's.
  void touch(const void* begin, std::int64_t bytes, bool writes, const Moment& moment, const Clock& clock);
  /// A range was allocated.
  void watch(const void* begin, std::int64_t bytes);
  /// It was given back.
  void forget(const void* begin, std::int64_t bytes);

  /// What was found since the last call, in words; at most a few.
  std::vector<std::string> take_races();

 private:
  struct History {
    std::uintptr_t end = 0;
    Moment written;             ///< queue position 0: never
    std::vector<Moment> reads;  ///< since then
  };
  using Ranges = std::map<std::uintptr_t, History>;

  Ranges::iterator split(std::uintptr_t at);
  void check(const Moment& earlier, const Moment& now, const Clock& clock, const char* how);

  std::mutex mutex_;
  Ranges ranges_;
  std::vector<std::string> races_;
};

}  // namespace fsdp::testing
