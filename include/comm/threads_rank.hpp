// SPDX-License-Identifier: Apache-2.0
/// @file
/// The core of Threads: one rank of a group, its element types and device erased.
#pragma once

#include <cstdint>
#include <exception>
#include <memory>
#include <string>
#include <string_view>
#include <vector>

#include <comm/any_queue.hpp>
#include <comm/backend.hpp>

namespace fsdp::comm {

class ThreadsGroup;  ///< what the ranks of one communicator share; in src/comm/threads_group.hpp

/// One rank. A collective publishes addresses; then every rank copies or sums its own part from where the peers have
/// it.
class ThreadsRank {
 public:
  static constexpr std::string_view queue_name = "threads";

  ThreadsRank(std::shared_ptr<ThreadsGroup> group, int rank, int world_rank, const Options& options);
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

  // Where a device's queue moves the tensors; small values are moved by the host all the same.
  /// Before the first transfer.
  void move_with(AnyQueue queue) { queue_ = std::move(queue); }
  /// A queue that only waits, for the end of each transfer on all ranks' queues; what moves need not wait for that.
  void join_with(AnyQueue queue) { joins_ = std::move(queue); }
  /// The next transfer of tensors starts after `event`, on this rank's queue and on those that read its memory.
  void after(AnyEvent event) { after_.push_back(std::move(event)); }
  /// When a transfer is done on all ranks' queues; null where it was done by hosts. The host waits for the peers'.
  AnyEvent done(Ticket ticket);
  /// The host waits; throws as `wait` does.
  void wait_for(const AnyEvent& event);

 private:
  bool on_queue(const Transfer& transfer) const { return queue_ && !transfer.values; }
  bool progress();
  bool advance(const Transfer& transfer);
  bool gather_from_ready(const Transfer& transfer, bool (ThreadsRank::*ready)(int) const);
  bool published(int peer) const;  ///< whether it has started the active transfer
  bool reduced(int peer) const;    ///< whether it has summed its own pieces of the active transfer
  bool all_published() const;
  void join(const Transfer& transfer, int peer);
  void copy(const Transfer& transfer, std::byte* to, const std::byte* from, std::int64_t elements);
  void sum_own_pieces(const Transfer& transfer);
  void copy_from(const Transfer& transfer, int peer);
  const Transfer& own_transfer(Ticket ticket) const;
  const Transfer& active_transfer_of(int peer) const;
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
  int exceptions_;  ///< in flight when this was made
  Monitor monitor_;
  Ticket next_ = 0;                          ///< transfers started
  Ticket active_ = 0;                        ///< transfers whose own part is done: the one that is worked at
  std::vector<char> copied_;                 ///< of the active transfer, by peer
  std::vector<Contribution> contributions_;  ///< to a sum, by rank

  AnyQueue queue_;  ///< empty where the host moves
  AnyQueue joins_;
  std::vector<AnyEvent> after_;  ///< what the next transfer of tensors starts after
  Ticket joined_ = 0;            ///< transfers whose end on all queues has its event in `done_`
  std::vector<AnyEvent> done_;   ///< of the last transfers, as the group's slots
  AnyEvent last_done_;           ///< the latest of them
};

}  // namespace fsdp::comm
