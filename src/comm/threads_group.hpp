// SPDX-License-Identifier: Apache-2.0
/// @file
/// What ranks that are threads share: counters that say who has come how far, and the failure that ends them all.
///
/// All counters are sequentially consistent: they order the ranks' copies, and a sleeper never misses the change it
/// waits for.
#pragma once

#include <array>
#include <atomic>
#include <chrono>
#include <condition_variable>
#include <cstdint>
#include <memory>
#include <mutex>
#include <string>
#include <string_view>
#include <vector>

#include <comm/any_queue.hpp>
#include <comm/transfer.hpp>

namespace fsdp::comm {

using Clock = std::chrono::steady_clock;

/// Adds its lifetime to a count of seconds.
class Stopwatch {
 public:
  explicit Stopwatch(double& seconds) : seconds_(seconds), begin_(Clock::now()) {}
  Stopwatch(const Stopwatch&) = delete;
  Stopwatch& operator=(const Stopwatch&) = delete;
  ~Stopwatch() { seconds_ += std::chrono::duration<double>(Clock::now() - begin_).count(); }

 private:
  double& seconds_;
  Clock::time_point begin_;
};

/// Says to failing peers that their memory is in use.
class Reading {
 public:
  explicit Reading(std::atomic<bool>& flag) : flag_(flag) { flag_.store(true); }
  Reading(const Reading&) = delete;
  Reading& operator=(const Reading&) = delete;
  ~Reading() { flag_.store(false); }

 private:
  std::atomic<bool>& flag_;
};

/// Shared by all communicators that were split from one launch.
class ThreadsWorld {
 public:
  /// Something changed that another rank may wait for.
  void signal();
  /// The number of changes so far.
  std::uint64_t version() const { return version_.load(); }
  /// Returns when the version is not `seen` any more or the deadline has passed: spins first where `spin`, then sleeps.
  void await_change(std::uint64_t seen, bool spin, Clock::time_point deadline);

  /// The first failure is kept.
  void poison(int rank, std::string_view reason) noexcept;
  bool poisoned() const { return failed_.load() >= 0; }
  int failed_rank() const { return failed_.load(); }
  std::string failure() const;

 private:
  alignas(64) std::atomic<std::uint64_t> version_ = 0;
  alignas(64) std::atomic<int> sleepers_ = 0;
  std::atomic<int> failed_ = -1;
  mutable std::mutex mutex_;
  std::condition_variable changed_;
  std::string failure_;
};

/// Points in the queues of ranks whose device moves the tensors of a transfer; each is set before the counter of the
/// same name says that the host has come so far.
struct Milestones {
  std::vector<AnyEvent> published;  ///< of the caller's queues: its tensors may be read
  AnyEvent reduced;                 ///< own pieces are summed
  AnyEvent finished;                ///< no longer reads peers
};

/// One rank as its peers see it.
struct alignas(64) ThreadsPeer {
  /// Transfers in flight: the slot of transfer t is t % depth, rewritten when all ranks have finished the one before.
  static constexpr std::uint64_t depth = 32;

  std::atomic<std::uint64_t> published = 0;  ///< transfers whose slot may be read
  std::atomic<std::uint64_t> finished =
      0;  ///< 2 t + 1: own pieces of transfer t summed; 2 t + 2: no longer reads peers for t
  std::atomic<bool> reading = false;  ///< is at this moment reading peers' memory
  std::atomic<bool> left = false;     ///< its communicator was destroyed: it will not come any more
  std::array<Transfer, depth> transfers;
  std::array<Milestones, depth> milestones;
  AnyEvent latest;  ///< after all that was queued; written while `reading`
};

/// The ranks of one communicator.
class ThreadsGroup {
 public:
  ThreadsGroup(std::shared_ptr<ThreadsWorld> shared_world, int size)
      : world(std::move(shared_world)), peers(static_cast<std::size_t>(size)) {}

  int size() const { return static_cast<int>(peers.size()); }
  ThreadsPeer& peer(int rank) { return peers[static_cast<std::size_t>(rank)]; }

  const std::shared_ptr<ThreadsWorld> world;

 private:
  std::vector<ThreadsPeer> peers;
};

}  // namespace fsdp::comm
