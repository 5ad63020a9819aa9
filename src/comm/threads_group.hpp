// SPDX-License-Identifier: Apache-2.0
/// @file
/// State that thread ranks share: counters of each rank's progress, and the failure that ends all ranks.
///
/// All counters are sequentially consistent. They order the ranks' copies, and a sleeper never misses a change.
#pragma once

#include <array>
#include <atomic>
#include <condition_variable>
#include <cstdint>
#include <memory>
#include <mutex>
#include <string>
#include <string_view>
#include <vector>

#include <tessera/comm/poll.hpp>
#include <tessera/comm/queued_core.hpp>
#include <tessera/comm/transfer.hpp>

namespace fsdp::comm {

/// Sets a flag while it is alive: this rank is reading peers' memory, so a failing peer must not free its memory yet.
class Reading {
 public:
  explicit Reading(std::atomic<bool>& flag) : flag_(flag) { flag_.store(true); }
  Reading(const Reading&) = delete;
  Reading& operator=(const Reading&) = delete;
  ~Reading() { flag_.store(false); }

 private:
  std::atomic<bool>& flag_;
};

/// State of one launch, shared by all communicators split from it.
class ThreadsWorld {
 public:
  /// Increments the version and wakes sleepers. Call it after every change that another rank may wait for.
  void notify();
  /// Returns the number of changes so far.
  std::uint64_t version() const { return version_.load(); }
  /// Waits until the version differs from `seen` or the deadline has passed. With `spin`, spins first; then sleeps.
  void await_change(std::uint64_t seen, bool spin, Clock::time_point deadline);

  /// Records a failure and wakes all ranks. Only the first failure is kept.
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

/// Events of one transfer in a rank's queues, if a device moves the tensors. Each event is set before the ThreadsPeer
/// counter of the same name shows that the rank's host has reached that point.
struct Milestones {
  std::vector<AnyEvent> published;  ///< events of the caller's queues, after which peers may read its tensors
  AnyEvent reduced;                 ///< event after which the rank's own pieces are summed
  AnyEvent finished;                ///< event after which the rank no longer reads peers' tensors
};

/// The state of one rank that its peers can read.
struct alignas(64) ThreadsPeer {
  /// Maximum number of transfers in flight. Transfer t has slot t % depth, which is reused once all ranks have finished
  /// transfer t - depth.
  static constexpr std::uint64_t depth = 32;

  std::atomic<std::uint64_t> published = 0;  ///< number of transfers whose slot may be read
  std::atomic<std::uint64_t> finished =
      0;  ///< 2 t + 1: own pieces of transfer t are summed; 2 t + 2: also no longer reads peers for t
  std::atomic<bool> reading = false;  ///< whether the rank is reading peers' memory now
  std::atomic<bool> joined = false;   ///< ThreadRanks: whether the rank's communicator has been made
  std::atomic<bool> left = false;     ///< whether the rank's communicator was destroyed: no more transfers will come
  std::array<Transfer, depth> transfers;
  std::array<Milestones, depth> milestones;
  AnyEvent latest;  ///< event after all enqueued work; written while `reading` is set
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

/// Returns the ranks of a new, separate job. Throws InputError unless `ranks` is at least 1 and at most the number of
/// threads that a machine can have.
std::shared_ptr<ThreadsGroup> group_of_threads(int ranks);

}  // namespace fsdp::comm
