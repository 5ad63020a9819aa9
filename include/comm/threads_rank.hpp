// SPDX-License-Identifier: Apache-2.0
/// @file
/// The core of Threads: one rank of a group, with element types and device erased.
#pragma once

#include <cstdint>
#include <memory>
#include <string>
#include <string_view>
#include <vector>

#include <tessera/comm/backend.hpp>
#include <tessera/comm/queued_core.hpp>

namespace fsdp::comm {

class ThreadsGroup;  ///< the state that the ranks of one communicator share; in src/comm/threads_group.hpp

/// One rank. A collective publishes addresses; then each rank copies or sums its own part directly from its peers'
/// memory.
class ThreadsRank {
 public:
  static constexpr std::string_view queue_name = "threads";

  /// Which component reports an exception that destroys this object to the other ranks.
  enum class End : std::uint8_t { is_reported_by_launcher, is_reported_here };

  ThreadsRank(std::shared_ptr<ThreadsGroup> group, int rank, int world_rank, const Options& options, End end);
  ThreadsRank(const ThreadsRank&) = delete;
  ThreadsRank& operator=(const ThreadsRank&) = delete;
  ~ThreadsRank();

  int rank() const { return rank_; }
  int size() const;
  Monitor& monitor() { return monitor_; }
  const Monitor& monitor() const { return monitor_; }
  std::int64_t scratch_bytes() const { return 0; }

  Transfer& prepare();
  Ticket start();
  bool test(Ticket ticket);
  void wait(Ticket ticket);
  void abandon(Ticket ticket) noexcept;
  std::unique_ptr<ThreadsRank> split(int color);

  // On an asynchronous device a queue moves the tensors; the host still moves small values.
  /// Sets the queue. Call it before the first transfer.
  void move_with(AnyQueue queue) { queue_ = std::move(queue); }
  /// Sets a second queue that only waits for the end of each transfer on all ranks' queues, so that the first queue
  /// does not have to wait.
  void join_with(AnyQueue queue) { joins_ = std::move(queue); }
  /// Makes the next transfer of tensors start after `event`, on this rank's queue and on the queues of ranks that read
  /// its memory.
  void after(AnyEvent event) { after_.push_back(std::move(event)); }
  /// Returns the event after which a transfer is complete on all ranks' queues (or a later one if the transfer is old);
  /// null if the hosts moved the data. Blocks until the peers' hosts have enqueued their parts.
  AnyEvent done(Ticket ticket);
  /// Blocks the host until `event` has happened. Throws as `wait` does.
  void wait_for(const AnyEvent& event);

 private:
  bool on_queue(const Transfer& transfer) const { return queue_ && !transfer.values; }
  bool progress();
  bool advance(const Transfer& transfer);
  bool gather_from_ready(const Transfer& transfer, bool (ThreadsRank::*ready)(int) const);
  bool published(int peer) const;  ///< whether the peer has started the active transfer
  bool reduced(int peer) const;    ///< whether the peer has summed its own pieces of the active transfer
  bool all_published() const;
  void join(const Transfer& transfer, int peer);
  void copy(const Transfer& transfer, std::byte* to, const std::byte* from, std::int64_t elements);
  void sum_own_pieces(const Transfer& transfer);
  void copy_from(const Transfer& transfer, int peer);
  const Transfer& own_transfer(Ticket ticket) const;
  const Transfer& active_transfer_of(int peer) const;
  void require_all_same() const;
  void set_finished(std::uint64_t step);
  bool complete(Ticket ticket) const;
  std::string missing(Ticket ticket, bool only_left) const;
  void finish_queued() noexcept;
  void let_peers_finish_reading() const noexcept;
  void let_queues_finish() const noexcept;
  [[noreturn]] void fail(const std::string& reason);
  void throw_if_poisoned() const;

  std::shared_ptr<ThreadsGroup> group_;
  int rank_;
  int world_rank_;
  End end_;
  int exceptions_;  ///< number of exceptions in flight at construction
  Monitor monitor_;
  Ticket next_ = 0;    ///< number of transfers started
  Ticket active_ = 0;  ///< number of transfers whose own part is complete; also the ticket of the active transfer
  std::vector<char> copied_;                 ///< by peer: whether the active transfer has copied from it
  std::vector<Contribution> contributions_;  ///< contributions to the current sum, by rank

  AnyQueue queue_;  ///< empty if the host moves the data
  AnyQueue joins_;
  std::vector<AnyEvent> after_;  ///< events that the next transfer of tensors starts after
  Ticket joined_ = 0;            ///< number of transfers whose completion event is in `done_`
  std::vector<AnyEvent> done_;   ///< completion events of the last transfers, by slot
  AnyEvent last_done_;           ///< the latest completion event
};

}  // namespace fsdp::comm
