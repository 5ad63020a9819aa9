// SPDX-License-Identifier: Apache-2.0
/// @file
/// The backend whose ranks are threads of one process and read each other's memory directly. The default on one
/// machine.
///
/// A collective publishes addresses; each rank then copies or sums its own part directly from its peers' memory,
/// without packing or sending. Waiting ranks spin for some microseconds, then sleep, so that there may be more ranks
/// than cores. On an asynchronous device all ranks share the device: the host threads synchronise in the same way, and
/// each rank enqueues its part on its own queue.
#pragma once

#include <tessera/fsdp/core/language.hpp>  // must be included before all others

#include <cstdint>
#include <memory>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include <tessera/comm/backend.hpp>
#include <tessera/comm/collectives.hpp>
#include <tessera/comm/queued_core.hpp>
#include <tessera/fsdp/core/error.hpp>
#include <tessera/fsdp/core/function_ref.hpp>
#include <tessera/fsdp/device/cpu.hpp>

namespace fsdp::comm {

class ThreadRanks;
struct ThreadsPeer;
class ThreadsGroup;  ///< the state that the ranks of one communicator share; in src/comm/threads_group.hpp

/// One rank. A collective publishes addresses; then each rank copies or sums its own part directly from its peers'
/// memory.
class ThreadsRank {
 public:
  static constexpr std::string_view queue_name = "threads";

  /// Which component reports an exception that destroys this object to the other ranks.
  enum class End : std::uint8_t { is_reported_by_launcher, is_reported_here };

  ThreadsRank(std::shared_ptr<ThreadsGroup> group, int rank, const Options& options, End end);
  ThreadsRank(const ThreadsRank&) = delete;
  ThreadsRank& operator=(const ThreadsRank&) = delete;
  ~ThreadsRank();

  int rank() const { return rank_; }
  int size() const;
  Monitor& monitor() { return monitor_; }
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
  void sum_own_pieces(const Transfer& transfer);
  void copy_from(const Transfer& transfer, int peer);
  ThreadsPeer& own() const;
  int world_rank() const { return monitor_.world_rank_of(rank_); }
  const Transfer& own_transfer(Ticket ticket) const;
  const Transfer& active_transfer_of(int peer) const;
  void set_finished(std::uint64_t step);
  bool complete(Ticket ticket) const;
  std::string missing(Ticket ticket, bool only_left) const;
  void let_peers_finish_reading() const noexcept;
  [[noreturn]] void fail(const std::string& reason);
  void throw_if_poisoned() const;

  std::shared_ptr<ThreadsGroup> group_;
  int rank_;
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

/// The launcher of Threads: runs f(core) on `ranks` threads and joins them. Returns the nonzero
/// status of the lowest rank that has one, else 0. If one throws, the others' collectives throw CollectiveError; the
/// first failure is rethrown here after all threads have ended.
int run_threads(int ranks, const Options& options, FunctionRef<int(std::unique_ptr<ThreadsRank>)> f);

/// A communicator of threads of this process, which read each other's memory.
template <class DeviceType = device::Cpu>
class Threads : public Backend<CoreOf<ThreadsRank, DeviceType>, DeviceType> {
  using Core = CoreOf<ThreadsRank, DeviceType>;

 public:
  static constexpr std::string_view name = "threads";
  std::string text() const { return message(name, ":", this->size()); }

  Threads split(int color) { return Threads(this->core().split(color)); }

  /// Runs f(communicator) on `ranks` threads; see run_threads for status and errors.
  template <class F>
  static int run(int ranks, const Options& options, F f) {
    return run_each(ranks, options, [&f](Threads& communicator) { return run_rank(f, communicator); });
  }

 private:
  friend class ThreadRanks;
  static int run_each(int ranks, const Options& options, FunctionRef<int(Threads&)> f) {
    return run_threads(ranks, options, [&f](std::unique_ptr<ThreadsRank> rank) {
      Threads communicator(comm::core_of<DeviceType>(std::move(rank)));
      return f(communicator);
    });
  }
  explicit Threads(std::unique_ptr<Core> core) : Backend<Core, DeviceType>(std::move(core)) {}
};

template <class DeviceType>
inline constexpr bool supports_wire<Threads<DeviceType>, bf16> = true;

FSDP_BACKEND(extern template, ThreadsRank, device::Cpu, Threads<>)

/// The ranks of one job, on threads of the caller; Threads::run makes its threads itself.
///
///     comm::ThreadRanks ranks(2);
///     // on thread 0:                     // on thread 1:
///     auto c = ranks.join(0);             auto c = ranks.join(1);
///
/// Several jobs may coexist in a process; they share no state. This
/// object may be destroyed before the communicators that it made.
///
/// If a rank fails, all collectives of the others throw CollectiveError, which identifies it: immediately if an
/// exception destroys a communicator of the rank or `fail` is called; at the deadline if its thread makes no more
/// calls. The caller may continue with a new object.
class ThreadRanks {
 public:
  /// Makes no threads. Throws InputError unless `ranks` is at least 1. Options::threads defaults to 1 here.
  explicit ThreadRanks(int ranks, const Options& options = {});

  int size() const;  ///< the number of ranks
  /// Returns the communicator of `rank`. Call it once per rank, on the thread that will use it; returns immediately.
  /// Throws InputError for a rank that does not exist or has already joined.
  template <class DeviceType = device::Cpu>
  Threads<DeviceType> join(int rank) {
    return Threads<DeviceType>(comm::core_of<DeviceType>(joined(rank)));
  }
  /// Reports that `rank` will make no more calls, with the reason. Any thread may call it, more than once: the first
  /// reason counts. Throws InputError for a rank that does not exist.
  void fail(int rank, std::string_view why);

 private:
  std::unique_ptr<ThreadsRank> joined(int rank);
  void require_rank(int rank) const;

  Options options_;
  std::shared_ptr<ThreadsGroup> group_;
};

}  // namespace fsdp::comm
